// page_header.ts - <ml-header>: name, language, units, and the link to what is shown.

import { css, html, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import { base, controls } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import './copy_button.js';

@customElement('ml-header')
export class PageHeader extends LedgerElement {
  static override styles = [base, controls, css`
    header { display: flex; flex-wrap: wrap; gap: 0.75rem 1.5rem; align-items: center; padding: 1.25rem 0; }
    .name { display: flex; align-items: center; gap: 0.7rem; flex: 1 1 22rem; }
    svg { flex: none; width: 34px; height: 34px; }
    .ink { fill: var(--ink); } .accent { fill: var(--accent); }
    h1 { font: 600 1.2rem/1.2 var(--serif); margin: 0; letter-spacing: -0.005em; }
    .name p { margin: 0.1rem 0 0; }
    .tools { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: center; }
    .pair { display: inline-flex; }
    .pair button { border-radius: 0; margin-inline-start: -1px; }
    .pair button:first-child { border-radius: 6px 0 0 6px; margin-inline-start: 0; }
    .pair button:last-child { border-radius: 0 6px 6px 0; }
    .skip { position: absolute; left: -100vw; top: 0.5rem; z-index: 4; }
    .skip:focus { left: 0.5rem; }
    @media print { .tools { display: none; } }
  `];

  @property({ attribute: false }) hash = '';

  protected override render(): TemplateResult {
    const { i18n } = this;
    const { units } = i18n.format;
    return html`<header>
        <button class="skip" @click=${() => this.ask({ kind: 'skip' })}>${i18n.t('page.skip')}</button>
        <div class="name">
          <svg viewBox="0 0 34 34" aria-hidden="true"><path class="ink" d="M2 6h22v4H2zM2 13h14v4H2zM2 20h18v4H2z" /><path class="accent" d="M2 28h30v3H2z" /></svg>
          <div><h1>${i18n.t('page.title')}</h1><p class="small soft">${i18n.t('page.tagline')}</p></div>
        </div>
        <div class="tools">
          <span class="pair" role="group" aria-label=${i18n.t('lang.label')}>
            <button lang="en" aria-pressed=${i18n.lang === 'en' ? 'true' : 'false'} @click=${() => this.ask({ kind: 'lang', lang: 'en' })}>English</button>
            <button lang="zh-Hans" aria-pressed=${i18n.lang === 'zh' ? 'true' : 'false'} @click=${() => this.ask({ kind: 'lang', lang: 'zh' })}>中文</button>
          </span>
          <span class="pair" role="group" aria-label=${i18n.t('units.label')} title=${i18n.t('units.hint')}>
            <button aria-pressed=${units === 'gib' ? 'true' : 'false'} @click=${() => this.ask({ kind: 'units', units: 'gib' })}>${i18n.t('units.gib')}</button>
            <button aria-pressed=${units === 'gb' ? 'true' : 'false'} @click=${() => this.ask({ kind: 'units', units: 'gb' })}>${i18n.t('units.gb')}</button>
            <button aria-pressed=${units === 'bytes' ? 'true' : 'false'} @click=${() => this.ask({ kind: 'units', units: 'bytes' })}>${i18n.t('units.bytes')}</button>
          </span>
          <ml-copy .i18n=${i18n} .label=${i18n.t('share.link')} .text=${() => location.href.replace(/#.*$/, '') + this.hash}></ml-copy>
        </div>
      </header>`;
  }
}
