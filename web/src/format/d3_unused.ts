// d3_unused.ts - stands for d3-interpolate and d3-format in the bundle (build.mjs), which d3-scale brings along for scales
// of colours and dates and for number formats (11 KB). Scales here map numbers to pixels; texts come from format.ts.

export const interpolateNumber = (a: number, b: number) => (t: number): number => a * (1 - t) + b * t;

export { interpolateNumber as interpolate };

const none = (): never => {
  throw new Error('not in the bundle: src/format/d3_unused.ts');
};

export { none as format, none as formatPrefix, none as formatSpecifier, none as interpolateRound, none as piecewise };
export { none as precisionFixed, none as precisionPrefix, none as precisionRound };
