export { EditorState, Compartment } from "@codemirror/state";
export { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { bracketMatching, ensureSyntaxTree, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
export { setDiagnostics, lintKeymap } from "@codemirror/lint";
export { json } from "@codemirror/lang-json";
export { tags } from "@lezer/highlight";
