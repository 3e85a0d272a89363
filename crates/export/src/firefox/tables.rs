//! The tables of a profile that stacks refer to.
//!
//! Must hold: a stack's number is that of its node, minus one, because the profile has no root. So no stack needs to be
//! looked up.
use crate::json;
use crate::selected::{Selected, name};
use analysis::{CodeClass, SiteId, StackTableLevel};
use format::Module;
use std::collections::HashMap;
use std::io::{self, Write};

/// The names and colours of the classes of code. The first one is for what has no class.
pub(super) const CATEGORIES: [(&str, &str); 6] = [
    ("Other", "grey"),
    ("Program", "blue"),
    ("Dependency", "green"),
    ("Runtime", "orange"),
    ("C library", "yellow"),
    ("Kernel", "purple"),
];

const fn category(class: Option<CodeClass>) -> usize {
    match class {
        None => 0,
        Some(CodeClass::Program) => 1,
        Some(CodeClass::Dependency) => 2,
        Some(CodeClass::Runtime) => 3,
        Some(CodeClass::Libc) => 4,
        Some(CodeClass::Kernel) => 5,
    }
}

/// A function: its name, its file, and the module's instance.
type FunctionKey = (usize, Option<usize>, Option<u16>);

pub(super) struct Tables<'a, 'b> {
    selected: &'a Selected<'b>,
    strings: Vec<String>,
    known_strings: HashMap<String, usize>,
    /// The texts of the files' paths.
    files: Vec<usize>,
    known_files: HashMap<usize, usize>,
    functions: Vec<FunctionKey>,
    known_functions: HashMap<FunctionKey, usize>,
    /// By level.
    function_of: Vec<usize>,
    /// Instances of the modules that frames refer to, and their numbers.
    libs: Vec<&'a Module>,
    lib_of: HashMap<u16, usize>,
}

impl<'a, 'b> Tables<'a, 'b> {
    pub(super) fn new(selected: &'a Selected<'b>) -> Self {
        let mut tables = Tables {
            selected,
            strings: Vec::new(),
            known_strings: HashMap::new(),
            files: Vec::new(),
            known_files: HashMap::new(),
            functions: Vec::new(),
            known_functions: HashMap::new(),
            function_of: Vec::new(),
            libs: Vec::new(),
            lib_of: HashMap::new(),
        };
        for level in selected.table.levels.iter() {
            let function = tables.function(level);
            tables.function_of.push(function);
        }
        tables
    }

    pub(super) fn string(&mut self, text: &str) -> usize {
        if let Some(known) = self.known_strings.get(text) {
            return *known;
        }
        self.known_strings.insert(text.to_owned(), self.strings.len());
        self.strings.push(text.to_owned());
        self.strings.len() - 1
    }

    fn file(&mut self, path: &str) -> usize {
        let text = self.string(path);
        let next = self.files.len();
        let number = *self.known_files.entry(text).or_insert(next);
        if number == next {
            self.files.push(text);
        }
        number
    }

    fn function(&mut self, level: &StackTableLevel) -> usize {
        let table = self.selected.table;
        let name = self.string(&name(table, level));
        let file = table.text(level.file).map(|file| self.file(file));
        let instance = self.selected.definitions.module(level.frame).map(|module| {
            let next = self.libs.len();
            let number = *self.lib_of.entry(module.instance).or_insert(next);
            if number == next {
                self.libs.push(module);
            }
            module.instance
        });
        let key = (name, file, instance);
        let next = self.functions.len();
        let number = *self.known_functions.entry(key).or_insert(next);
        if number == next {
            self.functions.push(key);
        }
        number
    }

    /// The number of a stack; `None` if nothing is known of it.
    pub(super) fn stack(&self, site: SiteId) -> Option<u32> {
        self.selected.table.stack(site).node.checked_sub(1)
    }

    pub(super) fn put_stack(&self, site: SiteId, out: &mut dyn Write) -> io::Result<()> {
        match self.stack(site) {
            Some(stack) => write!(out, "{stack}"),
            None => out.write_all(b"null"),
        }
    }

    pub(super) fn libs(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b",\"libs\":[")?;
        json::list(out, &self.libs, |out, module| {
            let path = self.selected.path(&module.path);
            let file = path.rsplit('/').next().unwrap_or(path);
            let code_id: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
            let lib = serde_json::json!({
                "name": file,
                "path": path,
                "debugName": file,
                "debugPath": path,
                "breakpadId": breakpad_id(&module.build_id),
                "codeId": code_id,
                "arch": "x86_64",
            });
            write!(out, "{lib}")
        })?;
        out.write_all(b"]")
    }

    /// The tables of stacks, frames, functions, modules, files and texts.
    pub(super) fn shared(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.stack_table(out)?;
        self.frame_table(out)?;
        let paths: Vec<String> = self.libs.iter().map(|lib| lib.path.clone()).collect();
        let names: Vec<usize> = paths.iter().map(|path| self.string(path.rsplit('/').next().unwrap_or(path))).collect();
        self.func_table(out)?;
        write!(out, ",\"resourceTable\":{{\"length\":{}", names.len())?;
        column(out, "lib", 0..names.len(), |out, lib| write!(out, "{lib}"))?;
        column(out, "name", &names, |out, name| write!(out, "{name}"))?;
        column(out, "host", &names, |out, _| write!(out, "null"))?;
        column(out, "type", &names, |out, _| write!(out, "1"))?;
        out.write_all(
            b"},\"nativeSymbols\":{\"length\":0,\"address\":[],\"functionSize\":[],\"libIndex\":[],\"name\":[]}",
        )?;
        write!(out, ",\"sources\":{{\"length\":{}", self.files.len())?;
        column(out, "uuid", &self.files, |out, _| write!(out, "null"))?;
        column(out, "filename", &self.files, |out, file| write!(out, "{file}"))?;
        out.write_all(b"}")?;
        self.strings(out)
    }

    fn stack_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let nodes = self.selected.table.nodes.get(1..).unwrap_or_default();
        write!(out, "\"stackTable\":{{\"length\":{}", nodes.len())?;
        column(out, "frame", nodes, |out, node| write!(out, "{}", node.level.unwrap_or(0)))?;
        column(out, "prefix", nodes, |out, node| match node.parent.checked_sub(1) {
            Some(parent) => write!(out, "{parent}"),
            None => write!(out, "null"),
        })?;
        out.write_all(b"}")
    }

    fn frame_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let levels = self.selected.table.levels.as_slice();
        let mut depths = vec![0u32; levels.len()];
        for at in (0..levels.len().saturating_sub(1)).rev() {
            depths[at] = if levels[at].inlined { depths[at + 1] + 1 } else { 0 };
        }
        write!(out, ",\"frameTable\":{{\"length\":{}", levels.len())?;
        column(out, "address", levels, |out, level| {
            if self.selected.definitions.module(level.frame).is_none() {
                return write!(out, "-1");
            }
            // A return address is after the call, so one less is within it.
            write!(out, "{}", level.frame.offset().saturating_sub(!level.frame.is_exact() as u64))
        })?;
        column(out, "inlineDepth", &depths, |out, depth| write!(out, "{depth}"))?;
        column(out, "category", levels, |out, level| write!(out, "{}", category(level.class)))?;
        column(out, "subcategory", levels, |out, _| write!(out, "0"))?;
        column(out, "func", &self.function_of, |out, function| write!(out, "{function}"))?;
        column(out, "nativeSymbol", levels, |out, _| write!(out, "null"))?;
        column(out, "innerWindowID", levels, |out, _| write!(out, "0"))?;
        column(out, "line", levels, |out, level| match level.line {
            Some(line) => write!(out, "{line}"),
            None => write!(out, "null"),
        })?;
        column(out, "column", levels, |out, _| write!(out, "null"))?;
        out.write_all(b"}")
    }

    fn func_table(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, ",\"funcTable\":{{\"length\":{}", self.functions.len())?;
        column(out, "name", &self.functions, |out, (name, ..)| write!(out, "{name}"))?;
        column(out, "isJS", &self.functions, |out, _| write!(out, "false"))?;
        column(out, "relevantForJS", &self.functions, |out, _| write!(out, "false"))?;
        column(out, "resource", &self.functions, |out, (.., instance)| {
            match instance.and_then(|instance| self.lib_of.get(&instance)) {
                Some(lib) => write!(out, "{lib}"),
                None => write!(out, "-1"),
            }
        })?;
        column(out, "source", &self.functions, |out, (_, file, _)| match file {
            Some(file) => write!(out, "{file}"),
            None => write!(out, "null"),
        })?;
        column(out, "lineNumber", &self.functions, |out, _| write!(out, "null"))?;
        column(out, "columnNumber", &self.functions, |out, _| write!(out, "null"))?;
        out.write_all(b"}")
    }

    fn strings(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b",\"stringArray\":[")?;
        json::list(out, &self.strings, |out, text| write!(out, "{}", json::text(text)))?;
        out.write_all(b"]")
    }
}

fn column<T>(
    out: &mut dyn Write,
    name: &str,
    items: impl IntoIterator<Item = T>,
    write: impl FnMut(&mut dyn Write, T) -> io::Result<()>,
) -> io::Result<()> {
    write!(out, ",\"{name}\":[")?;
    json::list(out, items, write)?;
    out.write_all(b"]")
}

/// The id by which symbol servers know a module: the build-id as a GUID, in which the first three numbers are little-endian,
/// and an age of 0.
fn breakpad_id(build_id: &[u8]) -> String {
    let byte = |at: usize| build_id.get(at).copied().unwrap_or(0);
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let guid: String = order.into_iter().map(|at| format!("{:02X}", byte(at))).collect();
    format!("{guid}0")
}
