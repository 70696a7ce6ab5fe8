// sight.ts - whether an element has come into sight, or was scrolled past; and what waits until the reader comes near.

import type { ReactiveController, ReactiveControllerHost } from 'lit';

export class SightController implements ReactiveController {
  seen = true;
  private watched: Element | undefined;
  private readonly observer = new IntersectionObserver((entries) => this.update(entries));

  constructor(private readonly host: ReactiveControllerHost, private readonly target: () => Element | null) {
    host.addController(this);
  }

  hostUpdated(): void {
    const element = this.target() ?? undefined;
    if (element === this.watched) return;
    this.observer.disconnect();
    this.watched = element;
    if (element) this.observer.observe(element);
  }

  hostDisconnected(): void {
    this.observer.disconnect();
    this.watched = undefined;
  }

  private update(entries: readonly IntersectionObserverEntry[]): void {
    const entry = entries.at(-1);
    if (!entry) return;
    const seen = entry.isIntersecting || entry.boundingClientRect.top < 0;
    if (seen === this.seen) return;
    this.seen = seen;
    this.host.requestUpdate();
  }
}

const NEAR = '200px';

// Runs once, when the target is about to come into sight.
export class NearController implements ReactiveController {
  private watched = false;

  constructor(host: ReactiveControllerHost, private readonly target: () => Element | null, private readonly run: () => void) {
    host.addController(this);
  }

  hostUpdated(): void {
    const element = this.watched ? null : this.target();
    if (!element) return;
    this.watched = true;
    const observer = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      this.run();
    }, { rootMargin: NEAR });
    observer.observe(element);
  }
}
