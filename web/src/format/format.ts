// format.ts - numbers as people read them: binary units for memory (GiB = 2^30), grouped digits, shares.

import type { Lang, Units } from '../state/request.js';

export const KIB = 1024;
export const MIB = 1024 * KIB;
export const GIB = 1024 * MIB;

const LOCALE: Readonly<Record<Lang, string>> = { en: 'en', zh: 'zh-Hans' };

const STYLES = {
  whole: { maximumFractionDigits: 0 },
  hundredths: { minimumFractionDigits: 2, maximumFractionDigits: 2 },
  three: { notation: 'compact', maximumSignificantDigits: 3 },
  share: { style: 'percent', minimumFractionDigits: 1, maximumFractionDigits: 1 },
} as const;

export class Format {
  private readonly made: Partial<Record<keyof typeof STYLES, Intl.NumberFormat>> = {}; // each is made when first asked for: they take a while

  constructor(private readonly lang: Lang, readonly units: Units) {}

  // "75.39 GiB", or to the byte when the reader asked for bytes. Never without a unit.
  bytes(value: number): string {
    return this.units === 'bytes' ? this.exact(value) : this.units === 'gb' ? this.decimal(value) : this.binary(value);
  }

  exact(value: number): string {
    return `${this.signed(value, this.in('whole', Math.abs(value)))} B`;
  }

  // "8.03B", as models are called by their size.
  short(value: number): string {
    return this.in('three', value);
  }

  // The largest unit that leaves a whole one, two decimals always, so that columns line up.
  binary(value: number): string {
    const size = Math.abs(value);
    if (size >= GIB) return `${this.signed(value, this.in('hundredths', size / GIB))} GiB`;
    if (size >= MIB) return `${this.signed(value, this.in('hundredths', size / MIB))} MiB`;
    if (size >= KIB) return `${this.signed(value, this.in('hundredths', size / KIB))} KiB`;
    return this.exact(value);
  }

  // The units of data sheets: 1 GB = 10^9 bytes.
  decimal(value: number): string {
    const size = Math.abs(value);
    if (size >= 1e9) return `${this.signed(value, this.in('hundredths', size / 1e9))} GB`;
    if (size >= 1e6) return `${this.signed(value, this.in('hundredths', size / 1e6))} MB`;
    return size >= 1e3 ? `${this.signed(value, this.in('hundredths', size / 1e3))} kB` : this.exact(value);
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
    return this.in('whole', value);
  }

  percent(part: number, whole: number): string {
    return this.in('share', whole === 0 ? 0 : part / whole);
  }

  private in(style: keyof typeof STYLES, value: number): string {
    return (this.made[style] ??= new Intl.NumberFormat(LOCALE[this.lang], STYLES[style])).format(value);
  }

  private signed(value: number, digits: string): string {
    return value < 0 ? `−${digits}` : digits;
  }
}
