// imported_message.ts - what was made of a framework's configuration: every key of it stands in one of the lists.

import type { I18n } from '../i18n/i18n.js';
import type { Said } from '../state/session.js';
import type { BoxMessage } from './model_box.js';

export function importedMessage({ name, imported, model }: Extract<Said, { kind: 'imported' }>, i18n: I18n): BoxMessage {
  const prefix = name ? `${i18n.t('box.name', { name })} ` : '';
  const list = (keys: readonly string[]): string => keys.join(', ');
  const lines = [prefix + i18n.t(imported.whole ? 'import.whole' : 'import.part', { format: imported.format })];
  if (model !== undefined) lines.push(i18n.t('import.model', { model, name: imported.model ?? '' }));
  else if (imported.model !== undefined) lines.push(i18n.t('import.model.unknown', { name: imported.model }));
  else if (imported.whole && imported.config === undefined) lines.push(i18n.t('import.model.none'));
  if (imported.used.length > 0) lines.push(i18n.t('import.used', { keys: list(imported.used) }));
  if (imported.notModelled.length > 0) lines.push(i18n.t('import.not_modelled', { keys: list(imported.notModelled) }));
  if (imported.notRead.length > 0) lines.push(i18n.t('import.not_read', { keys: list(imported.notRead) }));
  return { text: lines.join('\n') };
}
