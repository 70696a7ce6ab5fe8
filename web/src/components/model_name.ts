// model_name.ts - what a model is called on the page.

import type { I18n } from '../i18n/i18n.js';
import { findPreset } from '../state/presets.js';
import type { ModelChoice } from '../state/request.js';

export function modelName(model: ModelChoice, i18n: I18n): string {
  return model.kind === 'preset' ? findPreset(model.id)?.name ?? model.id : i18n.t('model.custom');
}
