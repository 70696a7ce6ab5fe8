// site.ts - where the site's files lie, and whether all of them are one.

declare const __SINGLE__: boolean; // set by the build

// The page as one HTML file: nothing lies beside it.
export const SINGLE = __SINGLE__;

// The build puts shared code into parts/, one folder below page.js and worker.js.
export const SITE = new URL(/\/parts\/[^/]*$/.test(import.meta.url) ? '..' : '.', import.meta.url);
