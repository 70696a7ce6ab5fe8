// shell.mjs - the HTML around the pages' elements: one head for all of them. What differs is in PAGES.

const HUB = 'https://huggingface.co'; // asked only when the reader names a model there

// connect: whom else the page may ask. threads: as one file it starts one from its own text. first: what the first answer needs.
const ICON = `data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 34 34'%3E%3Crect width='34' height='34' rx='7' fill='%23fbfaf7'/%3E%3Cpath fill='%231d1c1a' d='M5 8h20v3.5H5zM5 14h13v3.5H5zM5 20h17v3.5H5z'/%3E%3Cpath fill='%231f5c99' d='M5 26.5h24V29H5z'/%3E%3C/svg%3E`;
const NO_SCRIPT = `
      <p>Memory Ledger computes in your browser and needs JavaScript and WebAssembly. Please allow both for this site.</p>
      <p lang="zh-Hans">Memory Ledger 在你的浏览器中计算，需要 JavaScript 和 WebAssembly。请为本站启用二者。</p>
    `;

export const PAGES = {
  page: {
    title: 'Memory Ledger', root: '', icon: ICON, style: 'page.css', script: 'page.js', element: 'memory-ledger', connect: HUB, threads: true, first: ['first_answer.json'], noScript: NO_SCRIPT,
    meta: { description: 'Predicts the GPU memory of LLM training to the byte: peak, timeline and a ledger of every tensor. Runs in your browser.' },
  },
  course: {
    title: 'Where the memory goes · Memory Ledger', root: '../', icon: ICON, style: 'page.css', script: 'course.js', element: 'ml-course', connect: '', first: ['first_answer.json', 'lesson.js', 'lesson.wasm'], noScript: NO_SCRIPT,
    meta: { description: 'A course in the memory of LLM training: every figure computed in your browser.' },
  },
  frame: {
    title: 'Memory Ledger', root: '../', icon: 'data:,', style: 'frame.css', script: 'frame.js', element: 'memory-ledger', connect: '', first: [], meta: { robots: 'noindex' },
    noScript: 'Memory Ledger computes in your browser and needs JavaScript and WebAssembly. Memory Ledger 需要 JavaScript 和 WebAssembly。',
  },
};

// The page among its files; `parts` are those that its script imports at once.
export function shell(page, parts) {
  const { root, style, script, connect, first } = page;
  const policy = { 'script-src': "'self' 'wasm-unsafe-eval'", 'style-src': "'self'", 'img-src': "'self' data:", 'connect-src': ["'self'", connect].filter(Boolean).join(' ') };
  const links = [`<link rel="stylesheet" href="${root}${style}" />`, ...first.map((name) => preload(root + name)), ...parts.map((name) => preload(root + name)), `<script type="module" src="${root}${script}"></script>`];
  return document(page, policy, links, '');
}

// The page as one file: script and style stand in it, and the policy names them by their hashes.
export function singleShell(page, { style, styleHash, code, codeHash }) {
  const policy = { 'script-src': `${codeHash} 'wasm-unsafe-eval'`, 'style-src': styleHash, 'img-src': 'data:', 'connect-src': page.connect || "'none'", ...(page.threads ? { 'worker-src': 'blob:' } : {}) };
  return document(page, policy, [`<style>${style}</style>`], `\n    <script>${code}</script>`);
}

const preload = (path) => (/\.(wasm|json)$/.test(path) ? `<link rel="preload" href="${path}" as="fetch" crossorigin />` : `<link rel="modulepreload" href="${path}" />`);

function document({ title, meta, icon, element, noScript }, policy, links, end) {
  const rules = { 'default-src': "'none'", ...policy, 'base-uri': "'none'", 'form-action': "'none'" };
  const head = [
    '<meta charset="utf-8" />',
    `<meta http-equiv="Content-Security-Policy" content="${Object.entries(rules).map((rule) => rule.join(' ')).join('; ')}" />`,
    '<meta name="viewport" content="width=device-width, initial-scale=1" />',
    '<meta name="color-scheme" content="light dark" />',
    ...Object.entries(meta).map(([name, content]) => `<meta name="${name}" content="${content}" />`),
    `<title>${title}</title>`,
    `<link rel="icon" href="${icon}" />`,
    ...links,
  ];
  return `<!doctype html>
<html lang="en">
  <head>
    ${head.join('\n    ')}
  </head>
  <body>
    <${element}></${element}>
    <noscript>${noScript}</noscript>${end}
  </body>
</html>
`;
}
