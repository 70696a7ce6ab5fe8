// page.ts - the page's entry: registers <memory-ledger>, which stands in index.html (shell.mjs).

import './components/app.js';
