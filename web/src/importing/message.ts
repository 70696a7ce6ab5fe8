// message.ts - what was made of a framework's configuration, in words: every key of it stands in one of the lists. The texts are
// here and not with the page's, which is loaded without them.

import type { Lang } from '../state/request.js';
import type { Imported } from './rows.js';

const TEXTS = {
  en: {
    whole: 'Read as a configuration of {format}; the recipe is now what it says.',
    part: 'Read as {format}; the part of the recipe that it says has changed.',
    model: 'Its model, {name}, is taken for {model}.',
    model_unknown: 'Its model, {name}, is not known here, and the model above stays: type its name on the Hugging Face hub, or drop its config.json.',
    model_none: 'It does not say which model; the one above stays.',
    used: 'Used: {keys}.',
    not_modelled: 'They change memory, and the numbers do not contain them: {keys}.',
    not_read: 'Without effect here: {keys}.',
  },
  zh: {
    whole: '识别为 {format} 的配置；配方已按它设定。',
    part: '识别为 {format}；配方中它涉及的部分已更改。',
    model: '其中的模型 {name} 按 {model} 计算。',
    model_unknown: '其中的模型 {name} 没有收录，上面的模型保持不变：请输入它在 Hugging Face 上的名字，或拖入它的 config.json。',
    model_none: '它没有说明模型，上面的模型保持不变。',
    used: '已采用：{keys}。',
    not_modelled: '会影响显存、但结果中没有计入：{keys}。',
    not_read: '在此不起作用：{keys}。',
  },
} as const satisfies Record<Lang, Record<string, string>>;

// model: the checkpoint that the file's model was taken for. Lines, the first of them what the file is.
export function importedMessage(imported: Imported, model: string | undefined, lang: Lang): string {
  const texts = TEXTS[lang];
  const fill = (text: string, values: Readonly<Record<string, string>>): string => text.replace(/\{(\w+)\}/g, (_, key: string) => values[key] ?? '');
  const named = imported.model ?? '';
  const lines = [fill(imported.whole ? texts.whole : texts.part, { format: imported.format })];
  if (model !== undefined) lines.push(fill(texts.model, { model, name: named }));
  else if (named !== '') lines.push(fill(texts.model_unknown, { name: named }));
  else if (imported.whole && imported.config === undefined) lines.push(texts.model_none);
  for (const [text, keys] of [[texts.used, imported.used], [texts.not_modelled, imported.notModelled], [texts.not_read, imported.notRead]] as const) {
    if (keys.length > 0) lines.push(fill(text, { keys: keys.join(', ') }));
  }
  return lines.join('\n');
}
