// markdown.ts - the ledger as a Markdown table, bytes exact, for issues and notes.

import type { Line, Report } from '../core/types.js';
import type { I18n } from '../i18n/i18n.js';
import { formulaText } from './formula.js';
import { sum } from './ledger_tree.js';

export function ledgerMarkdown(report: Report, lines: readonly Line[], i18n: I18n): string {
  const head = [i18n.t('table.category'), i18n.t('ledger.tensor'), i18n.t('ledger.formula'), i18n.t('ledger.dtype'), i18n.t('table.bytes')];
  const rows = lines.map((line) => [
    i18n.category(line.category), `\`${line.name}\` ${line.op}`, formulaText(line, i18n.format), line.dtype, i18n.format.exact(line.bytes),
  ]);
  const total = ['', i18n.t('table.sum'), '', '', i18n.format.exact(sum(lines))];
  const table = [head, ['---', '---', '---', '---', '---:'], ...rows, total].map((cells) => `| ${cells.map(cell).join(' | ')} |`);
  const { phase, op } = report.peaks;
  return `${i18n.t('ledger.heading')} (${i18n.phase(phase)}, \`${op}\`)\n\n${table.join('\n')}\n`;
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|');
}
