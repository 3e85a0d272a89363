//! Recordings that an agent starts. The tools exist only if the user allowed it.
use super::lists::open_trace;
use super::{Context, Tool};
use crate::arguments::Arguments;
use crate::recorder::Recorded;
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

/// The longest recording, in seconds.
pub const LONGEST_S: u64 = 3600;
const TIMEOUT_S: u64 = 60;
const DURATION_S: u64 = 10;
/// How much longer than its duration an attached recording may take: to attach, to detach, and to find names.
const MARGIN_S: u64 = 60;

pub fn record(_: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    let command = arguments.texts("command")?;
    let longest = arguments.number("timeout_s", 1, LONGEST_S)?.unwrap_or(TIMEOUT_S);
    let output = output(context, arguments)?;
    let mut words = vec![OsStr::new("record"), OsStr::new("-o"), output.as_os_str(), OsStr::new("--")];
    words.extend(command.iter().map(OsStr::new));
    run(context, &words, output.clone(), Duration::from_secs(longest))
}

pub fn attach(_: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    let pid = arguments.number("pid", 1, i32::MAX as u64)?.ok_or("`pid` is missing")?.to_string();
    let seconds = arguments.number("duration_s", 1, LONGEST_S)?.unwrap_or(DURATION_S);
    let output = output(context, arguments)?;
    let duration = format!("{seconds}s");
    let words = ["attach", "--duration", &duration, "-o"].map(OsStr::new);
    let words: Vec<&OsStr> = words.into_iter().chain([output.as_os_str(), OsStr::new(&pid)]).collect();
    run(context, &words, output.clone(), Duration::from_secs(seconds + MARGIN_S))
}

/// The file of the new trace, which always has the ending of a trace.
fn output(context: &Context<'_>, arguments: &Arguments<'_>) -> Result<PathBuf, String> {
    let name = arguments.required("output")?;
    context.folders.new_file(&format!("{}.htz", name.strip_suffix(".htz").unwrap_or(name)))
}

fn run(context: &mut Context<'_>, words: &[&OsStr], output: PathBuf, longest: Duration) -> Result<Value, String> {
    let recorder = context.recorder.ok_or("this server may not record; start it with --allow-record")?;
    let folder = context.folders.paths().next().ok_or("this server has no folder")?;
    let Recorded { code, stopped, output: text } = recorder.run(words, folder, longest)?;
    if !output.exists() {
        return Err(format!("nothing was recorded (exit code {code:?}): {text}"));
    }
    let name = output.to_string_lossy().into_owned();
    let given: Map<String, Value> = [("trace".to_owned(), name.into())].into_iter().collect();
    let tool = Tool::find("open_trace", false).ok_or("there is no tool to open the trace")?;
    let mut answer = open_trace(tool, context, &Arguments::new(&given, tool.arguments)?)?;
    answer["exit_code"] = code.into();
    answer["stopped"] = stopped.into();
    answer["end_of_output"] = text.into();
    Ok(answer)
}
