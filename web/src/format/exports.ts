// exports.ts - the report as texts for elsewhere: a summary in Markdown, the ledger as CSV. All from the same report.

import type { Report } from '../core/types.js';
import type { I18n } from '../i18n/i18n.js';
import { barParts } from './bar_parts.js';
import { ledgerMarkdown } from './markdown.js';

export interface Facts {
  readonly title: string; // the question
  readonly answer: string; // the verdict
  readonly link: string;
  readonly command: string;
}

export function summaryMarkdown(report: Report, { title, answer, link, command }: Facts, i18n: I18n): string {
  const rows = barParts(report).parts.map((part) => {
    const name = part.kind === 'category' ? i18n.category(part.id) : i18n.t(`bar.${part.kind}`);
    return `| ${name} | ${i18n.bytes(part.bytes)} | ${i18n.format.exact(part.bytes)} |`;
  });
  const { peaks } = report;
  const figures = (['tensor', 'allocated', 'reserved', 'device'] as const).map((id) => {
    const bytes = id === 'device' ? peaks.device_bytes : peaks[`${id}_bytes`];
    return bytes === null ? '' : `| **${i18n.t(`figures.${id}`)}** | ${i18n.bytes(bytes)} | ${i18n.format.exact(bytes)} |`;
  });
  return [
    `**${title}**`, '', answer, '',
    `| ${i18n.t('table.category')} | ${i18n.t('table.bytes')} | ${i18n.t('units.bytes')} |`, '| --- | ---: | ---: |', ...rows, ...figures.filter(Boolean), '',
    ledgerMarkdown(report, report.at_peak.tensors, i18n), `\`${command}\``, '', link, '',
  ].join('\n');
}

const COLUMNS = ['category', 'name', 'op', 'dtype', 'shape', 'count', 'element_bytes', 'bytes'] as const;

// The ledger's lines under the report's own field names; bytes as integers. RFC 4180.
export function ledgerCsv(report: Report): string {
  const rows = report.at_peak.tensors.map((line) => COLUMNS.map((key) => field(key === 'shape' ? line.shape.join('x') : String(line[key]))));
  return [COLUMNS, ...rows].map((cells) => cells.join(',')).join('\r\n') + '\r\n';
}

function field(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
