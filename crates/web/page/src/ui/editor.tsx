// Links that open a line in an editor. A page can only open addresses, so a command is copied instead.
import type { JSX } from "preact";
import { recall } from "../store";
import { usePage } from "./context";
import { copy } from "./parts";

export const EDITORS: Record<string, [string, string]> = {
  none: ["no editor", ""],
  vscode: ["VS Code", "vscode://file/%f:%l:%c"],
  vscodium: ["VSCodium", "vscodium://file/%f:%l:%c"],
  jetbrains: ["JetBrains (IDEA)", "idea://open?file=%f&line=%l&column=%c"],
  clion: ["JetBrains (CLion)", "clion://open?file=%f&line=%l&column=%c"],
  zed: ["Zed", "zed://file/%f:%l:%c"],
  kate: ["Kate (copies a command)", "kate %f --line %l --column %c"],
  vim: ["Vim (copies a command)", "vim +%l %f"],
  emacs: ["Emacs (copies a command)", "emacs +%l:%c %f"],
  custom: ["custom…", ""],
};

export const filled = (template: string, file: string, line: number): string => {
  const isAddress = /^[a-z][a-z0-9+.-]*:/i.test(template);
  const path = isAddress ? encodeURI(file) : /[^\w./+-]/.test(file) ? `'${file.replaceAll("'", "'\\''")}'` : file;
  return template.replaceAll("%f", path).replaceAll("%l", String(line)).replaceAll("%c", "1");
};

export const template = (): string => {
  const name = recall<string>("editor", "vscode");
  return name === "custom" ? recall("editor.custom", "") : (EDITORS[name]?.[1] ?? "");
};

export const EditorLink = ({ file, line }: { file: string | null; line: number | null }): JSX.Element | null => {
  const { say } = usePage();
  const pattern = template();
  if (!file || !pattern) return null;
  const text = filled(pattern, file, line ?? 1);
  if (/^(javascript|data|vbscript):/i.test(text)) return null;
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) {
    return (
      <a class="editor" href={text} title={`Open in the editor: ${text}`} tabIndex={-1} onClick={(event) => event.stopPropagation()}>
        edit
      </a>
    );
  }
  return (
    <button
      type="button"
      class="editor link"
      title={`Copy: ${text}`}
      tabIndex={-1}
      onClick={async (event) => {
        event.stopPropagation();
        await copy(text);
        say(`Copied: ${text}`);
      }}
    >
      edit
    </button>
  );
};
