// drawn.ts - until what changed is drawn: long work is cut where the browser may do that, and take input. A tab out of sight draws
// nothing, and is not waited for.

export const drawn = (): Promise<void> => new Promise((next) => {
  requestAnimationFrame(() => setTimeout(next));
  setTimeout(next, document.hidden ? 0 : 1000);
});
