// embed.ts - the embed's entry: <script type="module" src=".../embed.js"> registers <memory-ledger>.

import './components/problem_note.js';
import { LedgerEmbed } from './embed/element.js';

if (!customElements.get('memory-ledger')) customElements.define('memory-ledger', LedgerEmbed); // two copies of the script do no harm

export { LedgerEmbed };
