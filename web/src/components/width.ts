// width.ts - tells a chart how wide its host is, so that text in it keeps its size.

import type { ReactiveController, ReactiveControllerHost } from 'lit';

export class WidthController implements ReactiveController {
  width = 0;
  private observer: ResizeObserver | undefined;

  constructor(private readonly host: ReactiveControllerHost & HTMLElement) {
    host.addController(this);
  }

  hostConnected(): void {
    this.observer = new ResizeObserver((entries) => this.measured(entries[0]?.contentRect.width ?? 0));
    this.observer.observe(this.host);
  }

  hostDisconnected(): void {
    this.observer?.disconnect();
  }

  private measured(width: number): void {
    const whole = Math.floor(width);
    if (Math.abs(whole - this.width) < 2) return;
    this.width = whole;
    this.host.requestUpdate();
  }
}
