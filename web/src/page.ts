// page.ts - the page's entry: registers <memory-ledger>, which stands in index.html.

import './components/app.js';
