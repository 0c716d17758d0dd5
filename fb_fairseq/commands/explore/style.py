"""The style sheet of the pictures. Light and dark are the page's: text takes its colours, and cells are transparent."""

STYLE = """
.gradio-container { max-width: 1240px !important; margin: 0 auto !important; }
#text textarea { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.ex, .ex-head {
  --ex-attention: 37 99 235; --ex-surprise: 234 88 12; --ex-positive: 190 24 93; --ex-negative: 13 148 136;
  --ex-text: var(--body-text-color); --ex-muted: color-mix(in srgb, var(--body-text-color) 68%, transparent);
  --ex-line: var(--border-color-primary); --ex-paper: 255 255 255;
  --ex-mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  color: var(--ex-text); line-height: 1.45;
}
.dark .ex, .dark .ex-head {
  --ex-attention: 96 165 250; --ex-surprise: 251 146 60; --ex-positive: 244 114 182; --ex-negative: 45 212 191;
  --ex-paper: 24 24 27;
}
.ex-head h1 { font-size: 1.45rem; font-weight: 650; margin: 0; color: var(--ex-text); }
.ex-head p { margin: .15rem 0 0; color: var(--ex-muted); font-size: .92rem; }
.ex h3 { font-size: 1rem; font-weight: 650; margin: 0 0 .1rem; color: var(--ex-text); }
.ex p { margin: 0 0 .55rem; color: var(--ex-muted); font-size: .85rem; }
.ex p b, .ex-head b { color: var(--ex-text); font-weight: 600; }
.ex code { font-family: var(--ex-mono); color: var(--ex-text); background: none; padding: 0; }
.ex-text { position: relative; font: 1.02rem/1.75 var(--ex-mono); max-height: 17rem; overflow: auto;
  overflow-wrap: anywhere; }
.ex-token { cursor: pointer; border-radius: 3px; padding: 2px 0; min-width: .6ch; display: inline-block;
  line-height: 1.25; white-space: pre; color: var(--ex-text);
  background: rgb(var(--ex-surprise) / calc(var(--share) * .8)); }
.ex-words .ex-token { padding: 2px 4px; margin-right: 2px; }
.ex-token:hover { outline: 1px solid var(--ex-muted); }
.ex-token.ex-special { color: var(--ex-muted); font-size: .8em; padding: 2px 4px; margin-right: 3px;
  border: 1px dashed var(--ex-line); }
.ex-token.ex-selected { outline: 2px solid rgb(var(--ex-attention)); outline-offset: 0; }
.ex-scale { display: inline-block; vertical-align: -1px; width: 90px; height: 10px; border-radius: 2px; margin: 0 5px;
  border: 1px solid var(--ex-line); }
.ex-range { white-space: nowrap; }
.ex-bars { display: grid; grid-template-columns: max-content 1fr 3.6rem; gap: 4px 8px; align-items: center;
  font-size: .88rem; }
.ex-bars .ex-name { font-family: var(--ex-mono); text-align: right; max-width: 9rem; overflow: hidden;
  text-overflow: ellipsis; white-space: pre; }
.ex-bars .ex-follows { color: rgb(var(--ex-surprise)); font-weight: 700; }
.ex-track { position: relative; height: 15px; border-radius: 3px; background: rgb(128 128 128 / .12); }
.ex-bar { position: absolute; inset: 0 auto 0 0; border-radius: 3px; background: rgb(var(--ex-attention) / .75); }
.ex-follows + .ex-track .ex-bar { background: rgb(var(--ex-surprise) / .8); }
.ex-mark { position: absolute; top: -2px; bottom: -2px; width: 2px; margin-left: -1px; background: var(--ex-text); }
.ex-number { font-variant-numeric: tabular-nums; color: var(--ex-muted); text-align: right; }
.ex svg { display: block; max-width: 100%; height: auto; }
.ex svg text { fill: var(--ex-text); font-family: inherit; }
.ex svg .ex-axis { fill: var(--ex-muted); }
.ex svg .ex-mono { font-family: var(--ex-mono); }
.ex svg .ex-on { fill: rgb(var(--ex-paper)); }
.ex svg .a { fill: rgb(var(--ex-attention)); }
.ex svg .p { fill: rgb(var(--ex-positive)); }
.ex svg .n { fill: rgb(var(--ex-negative)); }
.ex svg .ex-frame { fill: none; stroke: var(--ex-line); }
.ex svg .ex-grid { stroke: var(--ex-line); stroke-width: 1; }
"""
