// drop.ts - files and text dropped or pasted anywhere on the page.

import type { ReactiveController, ReactiveControllerHost } from 'lit';

export interface Takers {
  readonly file: (file: File) => void;
  readonly text: (text: string) => void;
}

export class DropController implements ReactiveController {
  over = false;

  constructor(private readonly host: ReactiveControllerHost, private readonly take: Takers) {
    host.addController(this);
  }

  hostConnected(): void {
    document.addEventListener('dragover', this.onDragOver);
    document.addEventListener('dragleave', this.onDragLeave);
    document.addEventListener('drop', this.onDrop);
    document.addEventListener('paste', this.onPaste);
  }

  hostDisconnected(): void {
    document.removeEventListener('dragover', this.onDragOver);
    document.removeEventListener('dragleave', this.onDragLeave);
    document.removeEventListener('drop', this.onDrop);
    document.removeEventListener('paste', this.onPaste);
  }

  private readonly onDragOver = (event: DragEvent): void => {
    if (inField(event)) return;
    event.preventDefault();
    this.setOver(true);
  };

  private readonly onDragLeave = (event: DragEvent): void => {
    if (event.relatedTarget === null) this.setOver(false);
  };

  private readonly onDrop = (event: DragEvent): void => {
    this.setOver(false);
    const files = [...(event.dataTransfer?.files ?? [])];
    if (inField(event) && files.length === 0) return;
    event.preventDefault();
    for (const file of files) this.take.file(file);
    const text = files.length === 0 ? event.dataTransfer?.getData('text/plain') ?? '' : '';
    if (text.trim() !== '') this.take.text(text);
  };

  private readonly onPaste = (event: ClipboardEvent): void => {
    if (inField(event)) return;
    const text = event.clipboardData?.getData('text/plain') ?? '';
    for (const file of event.clipboardData?.files ?? []) this.take.file(file);
    if (text.trim() !== '') this.take.text(text);
  };

  private setOver(over: boolean): void {
    if (over === this.over) return;
    this.over = over;
    this.host.requestUpdate();
  }
}

// A field takes its own text; files are always ours.
function inField(event: Event): boolean {
  const target = event.composedPath()[0];
  const holdsFiles = event instanceof DragEvent && [...(event.dataTransfer?.types ?? [])].includes('Files');
  return !holdsFiles && (target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement);
}
