// model_search.ts - which of the known models a reader means by what was typed.

import { loadPresets, type Preset } from './presets.js';

// "Qwen 2.5-72b" -> "qwen25 72b": how names are cut into words differs from reader to reader.
function letters(text: string): string {
  return text.toLowerCase().replace(/[-_.]/g, '').replace(/[^\p{L}\p{N}]+/gu, ' ').trim();
}

export function familyOf({ config }: Preset): string {
  return (config as { model_type?: string }).model_type ?? '';
}

// Those with every word of `text` in their name, hub name or family; names that begin with it first. All, when it is empty.
export function matching(presets: readonly Preset[], text: string): readonly Preset[] {
  const wanted = letters(text);
  const words = wanted.split(' ').filter(Boolean);
  if (words.length === 0) return presets;
  const whole = wanted.replaceAll(' ', '');
  const scored = presets.flatMap((preset) => {
    const name = letters(preset.name).replaceAll(' ', '');
    const all = `${name} ${letters(`${preset.hub ?? ''} ${familyOf(preset)}`)}`;
    if (!words.every((word) => all.includes(word))) return [];
    return [{ preset, rank: name === whole ? 0 : name.startsWith(whole) ? 1 : 2 }];
  });
  return scored.sort((a, b) => a.rank - b.rank).map(({ preset }) => preset); // stable: equals stay in their order
}

// Names that say how a checkpoint was tuned; its sizes are those of the one it was tuned from.
const TUNED = /(-(instruct|base|chat|hf|it|pt))+$/i;

// The checkpoint that a name on the hub means: the same one, or one of the same name elsewhere, or one tuned from it.
export async function knownModel(name: string): Promise<Preset | undefined> {
  const presets = await loadPresets().catch(() => []);
  const last = (path: string): string => (path.split('/').pop() ?? '').toLowerCase();
  const tunedFrom = (path: string): string => last(path).replace(TUNED, '');
  return presets.find(({ id, hub }) => id === name || hub === name)
    ?? presets.find(({ hub }) => hub !== undefined && last(hub) === last(name))
    ?? presets.find(({ hub }) => hub !== undefined && tunedFrom(hub) === tunedFrom(name));
}
