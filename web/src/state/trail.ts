// trail.ts - the browser's history follows the changes, so that its back button undoes them: a step for each change, but
// one for all that is typed into a field in a row.

const IN_A_ROW_MS = 1500;

interface Place {
  readonly history: Pick<History, 'pushState' | 'replaceState'>;
  readonly location: Pick<Location, 'hash'>;
}

export class Trail {
  private last = { what: '', at: -Infinity };

  constructor(private readonly place: Place, private readonly now: () => number = () => performance.now()) {}

  // what: names the change, e.g. the key that was set; '' for none of the reader's (a link opened, an answer that came).
  follow(hash: string, what: string): void {
    const { history, location } = this.place;
    if (hash === location.hash) return;
    const at = this.now();
    const goesOn = what === this.last.what && at - this.last.at < IN_A_ROW_MS;
    if (what === '' || goesOn) history.replaceState(null, '', hash);
    else history.pushState(null, '', hash);
    this.last = { what, at };
  }
}
