// number_text.ts - numbers as programmers write them: the shortest text that reads back equal, powers of two as such.

export function numberText(value: number | null, none: string): string {
  if (value === null) return none;
  return (Object.is(value, -0) ? '-0' : String(value)).replace('-', '−').replace('e−', 'e-').replace('e+', 'e');
}

// "2^-7 = 0.0078125" for powers of two, in raised digits; other numbers as they are.
export function power(value: number): string {
  const exponent = Math.round(Math.log2(value));
  if (2 ** exponent !== value) return numberText(value, '');
  const raised = [...String(exponent)].map((digit) => RAISED[digit] ?? digit).join('');
  return `2${raised} = ${numberText(Number(value.toPrecision(6)), '')}`;
}

const RAISED: Readonly<Record<string, string>> = { '-': '⁻', 0: '⁰', 1: '¹', 2: '²', 3: '³', 4: '⁴', 5: '⁵', 6: '⁶', 7: '⁷', 8: '⁸', 9: '⁹' };
