//! Nim's C names: `name__module_u12` (Nim 2) or `name__module_12` (Nim 1), with letters for what C does not allow.

/// `None`: not made by Nim.
pub(super) fn demangle(raw: &str) -> Option<String> {
    let (rest, number) = raw.rsplit_once('_')?;
    let digits = number.strip_prefix('u').unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (name, module) = rest.rsplit_once("__").filter(|(name, module)| !name.is_empty() && !module.is_empty())?;
    // In a module's path `Z` stands for a slash; names of modules are lower case.
    Some(format!("{}.{}", module.replace('Z', "/"), decode(name.strip_suffix('_').unwrap_or(name))))
}

/// `X5B` is the character 0x5b.
fn decode(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some(at) = rest.find('X') {
        let (before, behind) = rest.split_at(at);
        out += before;
        let code = behind.get(1..3).filter(|hex| hex.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)));
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(u8::is_ascii_graphic) {
            Some(byte) => {
                out.push(byte as char);
                rest = &behind[3..];
            }
            None => {
                out.push('X');
                rest = &behind[1..];
            }
        }
    }
    out + rest
}
