//! Demangles Nim's C names: `name__module_u12` (Nim 2) or `name__module_12` (Nim 1), with words for characters that C
//! does not allow.

/// The words for characters that C does not allow in a name.
const WORDS: [(&str, char); 20] = [
    ("amp", '&'),
    ("at", '@'),
    ("backslash", '\\'),
    ("bar", '|'),
    ("colon", ':'),
    ("dollar", '$'),
    ("dot", '.'),
    ("emark", '!'),
    ("eq", '='),
    ("gt", '>'),
    ("lt", '<'),
    ("minus", '-'),
    ("percent", '%'),
    ("plus", '+'),
    ("qmark", '?'),
    ("roof", '^'),
    ("slash", '/'),
    ("star", '*'),
    ("tilde", '~'),
    ("uscore", '_'),
];

/// Returns `None` if it is not a name of Nim.
pub(crate) fn demangle(raw: &str) -> Option<String> {
    if let Some(name) = start_of_module(raw) {
        return Some(name);
    }
    let (rest, number) = raw.rsplit_once('_')?;
    let digits = number.strip_prefix('u').unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (name, module) = rest.rsplit_once("__").filter(|(name, module)| !name.is_empty() && !module.is_empty())?;
    // A name that had to be rewritten ends in an underscore.
    let name = name.strip_suffix('_').map_or_else(|| decode(name), |name| decode(&operators(name)));
    // In a module's path `Z` stands for a slash; names of modules are lower case.
    Some(format!("{}.{name}", module.replace('Z', "/")))
}

/// Demangles the name of a module's code outside of procedures: `atmshelfdotnim_Init000` (`@mshelf.nim`) becomes
/// `shelf.Init`. In the path, `ats` (`@s`) is a slash.
fn start_of_module(raw: &str) -> Option<String> {
    let (path, what) = raw.strip_prefix("atm")?.split_once("dotnim_")?;
    let what = what.strip_suffix("Init000")?;
    let module = path.rsplit("ats").next().filter(|module| !module.is_empty())?;
    Some(format!("{module}.{what}Init"))
}

/// Replaces words at the beginning of a name by their characters: `eqdestroy` becomes `=destroy`.
fn operators(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some((word, sign)) = WORDS.iter().find(|(word, _)| rest.starts_with(word)) {
        out.push(*sign);
        rest = &rest[word.len()..];
    }
    out + rest
}

/// Replaces codes by their characters: `X5B` becomes `[`, the character 0x5b.
fn decode(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some(at) = rest.find('X') {
        let (before, after) = rest.split_at(at);
        out += before;
        let code = after.get(1..3).filter(|hex| hex.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)));
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(u8::is_ascii_graphic) {
            Some(byte) => {
                out.push(byte as char);
                rest = &after[3..];
            }
            None => {
                out.push('X');
                rest = &after[1..];
            }
        }
    }
    out + rest
}
