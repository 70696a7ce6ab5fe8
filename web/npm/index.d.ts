// Types of the element and its event. The documents (report, problem) are docs/file-formats.md.

export interface LedgerProblem {
  readonly code: string;
  readonly where: string;
  readonly read: string;
  readonly expected: string;
  readonly nearest: string;
}

export interface LedgerReport {
  readonly schema_version: string;
  readonly kind: 'predicted';
  readonly model: { readonly family: string; readonly params: number; readonly trainable: number };
  readonly recipe: Readonly<Record<string, string | number | boolean | readonly string[]>>;
  readonly peaks: {
    readonly tensor_bytes: number;
    readonly workspace_bytes: number;
    readonly allocated_bytes: number;
    readonly reserved_bytes: number;
    readonly device_bytes: number | null;
    readonly phase: string;
    readonly op: string;
  };
  readonly verdict: { readonly gpu: string; readonly answer: 'fits' | 'tight' | 'does_not_fit'; readonly headroom_bytes: number };
  readonly [key: string]: unknown;
}

export interface LedgerChange {
  readonly report: LedgerReport | undefined;
  readonly problem: LedgerProblem | undefined;
  readonly hash: string;
}

/** <memory-ledger>; its attributes are listed in docs/embedding.md. */
export declare class LedgerEmbed extends HTMLElement {
  /** What the element shows; undefined before it has come into sight, or when the core refused. */
  readonly report: LedgerReport | undefined;
}

declare global {
  interface HTMLElementTagNameMap {
    'memory-ledger': LedgerEmbed;
  }
  interface HTMLElementEventMap {
    'memory-ledger-change': CustomEvent<LedgerChange>;
  }
}
