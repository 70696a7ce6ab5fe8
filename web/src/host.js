// host.js - beside an <iframe data-memory-ledger>: makes it as high as its content. Listens to those frames alone.
(() => {
  const frames = () => [...document.querySelectorAll('iframe[data-memory-ledger]')];
  window.addEventListener('message', ({ source, data }) => {
    if (!data || data.memoryLedger !== 1) return;
    const frame = frames().find((each) => each.contentWindow === source);
    if (!frame) return;
    if (data.type === 'height' && data.px > 0 && data.px < 20000) {
      frame.style.boxSizing = 'border-box'; // whatever the host's style says; a border comes on top
      frame.style.height = `${data.px + frame.offsetHeight - frame.clientHeight}px`;
    }
    if (data.type === 'change') frame.dispatchEvent(new CustomEvent('memory-ledger-change', { detail: data, bubbles: true }));
  });
  const greet = () => frames().forEach((frame) => frame.contentWindow?.postMessage({ memoryLedger: 1, type: 'hello' }, '*'));
  document.addEventListener('DOMContentLoaded', greet);
  window.addEventListener('load', greet);
  greet();
})();
