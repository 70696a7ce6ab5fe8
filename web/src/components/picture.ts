// picture.ts - charts as a file of their own: SVG with its colours written into it, or PNG at twice the size.

const WRITTEN = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'font-family', 'font-size', 'font-weight', 'font-style', 'paint-order', 'text-anchor'];
const GAP = 28;
const MARGIN = 20;

// The charts one below the other, under a title; as they look on the page now.
export function pictureOf(charts: readonly SVGSVGElement[], title: string): string {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue('--ink').trim();
  const width = Math.max(...charts.map((chart) => chart.clientWidth)) + 2 * MARGIN;
  let top = MARGIN + 20;
  const parts = charts.map((chart) => {
    const copy = withStyles(chart);
    copy.setAttribute('x', String(MARGIN));
    copy.setAttribute('y', String(top + GAP));
    copy.setAttribute('width', String(chart.clientWidth));
    copy.setAttribute('height', String(chart.clientHeight));
    copy.setAttribute('overflow', 'visible');
    top += chart.clientHeight + GAP;
    return new XMLSerializer().serializeToString(copy);
  });
  const height = top + MARGIN;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`
    + `<rect width="100%" height="100%" fill="${style.getPropertyValue('--paper').trim()}"/>`
    + `<text x="${MARGIN}" y="${MARGIN + 12}" fill="${ink}" font-family="sans-serif" font-size="14" font-weight="600">${escaped(title)}</text>${parts.join('')}</svg>\n`;
}

function withStyles(chart: SVGSVGElement): SVGSVGElement {
  const copy = chart.cloneNode(true) as SVGSVGElement;
  const originals = [chart, ...chart.querySelectorAll('*')];
  for (const [i, element] of [copy, ...copy.querySelectorAll('*')].entries()) {
    const style = getComputedStyle(originals[i] as Element);
    for (const name of WRITTEN) {
      const value = style.getPropertyValue(name);
      if (value) element.setAttribute(name, value);
    }
    for (const name of ['class', 'role', 'tabindex', 'aria-hidden', 'aria-label', 'style']) element.removeAttribute(name);
  }
  return copy;
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

export async function pngOf(picture: string): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture)}`;
  await image.decode();
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [image.width * 2, image.height * 2];
  const context = canvas.getContext('2d');
  context?.scale(2, 2);
  context?.drawImage(image, 0, 0);
  return new Promise((done, failed) => {
    canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error('no picture'))), 'image/png');
  });
}
