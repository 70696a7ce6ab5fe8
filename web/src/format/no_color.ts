// no_color.ts - stands for d3-color in the bundle (build.mjs): scales here map numbers to pixels, and colours come from
// CSS, so the colour spaces that d3-interpolate would bring along (10 KB) are never asked for.

const none = (): null => null;

export { none as color, none as cubehelix, none as hcl, none as hsl, none as lab, none as rgb };
