// format.ts - numbers as people read them: binary units for memory (GiB = 2^30), grouped digits, shares.

import type { Lang, Units } from '../state/request.js';

export const KIB = 1024;
export const MIB = 1024 * KIB;
export const GIB = 1024 * MIB;

const LOCALE: Readonly<Record<Lang, string>> = { en: 'en', zh: 'zh-Hans' };

const COMPACT = { notation: 'compact', maximumSignificantDigits: 3 } as const;

// Both languages write 1,234,567.80, rounded as the shortest decimal that names the number is; `shift`: powers of ten to move the point by.
// This is Intl's answer (a test compares), without the time that a page's first Intl.NumberFormat takes to look up every locale there is,
// which is as long as all else on the first screen.
export function digits(value: number, decimals: number, shift = 0): string {
  const size = Math.abs(value);
  const rounded = size < 1e-6 ? '0' : String(Math.round(decimals + shift > 0 ? Number(`${size}e${decimals + shift}`) : size));
  const all = rounded.padStart(decimals + 1, '0');
  const whole = all.length - decimals;
  return `${value < 0 ? '-' : ''}${grouped(all, whole)}${decimals > 0 ? `.${all.slice(whole)}` : ''}`;
}

function grouped(all: string, end: number): string {
  return end <= 3 ? all.slice(0, end) : `${grouped(all, end - 3)},${all.slice(end - 3, end)}`;
}

export class Format {
  private compact: Intl.NumberFormat | undefined;

  constructor(private readonly lang: Lang, readonly units: Units) {}

  // "75.39 GiB", or to the byte when the reader asked for bytes. Never without a unit.
  bytes(value: number): string {
    return this.units === 'bytes' ? this.exact(value) : this.units === 'gb' ? this.decimal(value) : this.binary(value);
  }

  exact(value: number): string {
    return `${this.signed(value, digits(Math.abs(value), 0))} B`;
  }

  // "8.03B", as models are called by their size.
  short(value: number): string {
    return (this.compact ??= new Intl.NumberFormat(LOCALE[this.lang], COMPACT)).format(value);
  }

  // The largest unit that leaves a whole one, two decimals always, so that columns line up.
  binary(value: number): string {
    const size = Math.abs(value);
    if (size >= GIB) return `${this.signed(value, digits(size / GIB, 2))} GiB`;
    if (size >= MIB) return `${this.signed(value, digits(size / MIB, 2))} MiB`;
    if (size >= KIB) return `${this.signed(value, digits(size / KIB, 2))} KiB`;
    return this.exact(value);
  }

  // The units of data sheets: 1 GB = 10^9 bytes.
  decimal(value: number): string {
    const size = Math.abs(value);
    if (size >= 1e9) return `${this.signed(value, digits(size / 1e9, 2))} GB`;
    if (size >= 1e6) return `${this.signed(value, digits(size / 1e6, 2))} MB`;
    return size >= 1e3 ? `${this.signed(value, digits(size / 1e3, 2))} kB` : this.exact(value);
  }

  // "66.54–66.90 GiB"; each with its unit where they differ.
  range(low: number, high: number): string {
    const [from, to] = this.units === 'gb' ? [this.decimal(low), this.decimal(high)] : [this.binary(low), this.binary(high)];
    const unit = to.slice(to.indexOf(' '));
    return (from.endsWith(unit) ? `${from.slice(0, -unit.length)}–${to}` : `${from} – ${to}`).replaceAll(' ', '\u00a0');
  }

  // With a sign even when positive: differences.
  difference(value: number): string {
    return value > 0 ? `+${this.bytes(value)}` : this.bytes(value);
  }

  count(value: number): string {
    return digits(value, 0);
  }

  percent(part: number, whole: number): string {
    return `${digits(whole === 0 ? 0 : part / whole, 1, 2)}%`;
  }

  private signed(value: number, digits: string): string {
    return value < 0 ? `−${digits}` : digits;
  }
}
