//! Speaks JSON-RPC 2.0, one message in each line.
//!
//! One thread reads and answers what needs no trace. Another one works on the calls of tools, one after the other, so that a
//! ping or a cancellation does not wait for a slow answer.
use crate::folders::Folders;
use crate::lines::{Line, next_line};
use crate::prompts;
use crate::recorder::Recorder;
use crate::rows::shortened;
use crate::tools::{self, Context, Tool};
use crate::traces::Traces;
use serde_json::{Map, Value, json};
use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};

/// The versions of the protocol that this server speaks, the newest first.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The most calls that wait for their answer.
const WAITING: usize = 64;

const PARSE: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const NO_METHOD: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const BUSY: i64 = -32000;

/// What the agent reads before it asks.
const INSTRUCTIONS: &str = "Answers questions about recordings of heap memory. Ask `list_traces` for the files and `open_trace` for what a trace contains and what was not seen. Rows have a `site`, the number of a stack, for the tool `stack`. Times are nanoseconds since the start of the recording. If an answer has a `next_cursor`, there are more rows.";

pub struct Options {
    pub folders: Folders,
    /// Present if the agent may record.
    pub recorder: Option<Recorder>,
    pub version: String,
}

struct Call {
    id: Value,
    tool: &'static Tool,
    arguments: Map<String, Value>,
}

/// The calls that wait, and the one that runs.
#[derive(Default)]
struct Calls {
    running: Option<Value>,
    /// A call that is cancelled is taken out, and gets no answer.
    waiting: Vec<Value>,
}

struct Server<'a, W> {
    options: &'a Options,
    output: Mutex<W>,
    calls: Mutex<Calls>,
}

type Failure = (i64, String);

/// Serves until the input ends. Returns an error if the input or the output cannot be used any more.
pub fn serve(mut input: impl BufRead, output: impl Write + Send, options: &Options) -> io::Result<()> {
    let server = Server { options, output: Mutex::new(output), calls: Mutex::default() };
    let (sender, receiver) = sync_channel(WAITING);
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().name("heaptrack-mcp".into());
        let (server, sender) = (&server, sender);
        worker.spawn_scoped(scope, move || server.work(&receiver))?;
        let read = loop {
            let answer = match next_line(&mut input) {
                Err(error) => break Err(error),
                Ok(None) => break Ok(()),
                Ok(Some(Line::TooLong)) => {
                    let sentence = format!("the request is longer than {} bytes", crate::LONGEST_LINE);
                    Some(failure(&Value::Null, (INVALID_REQUEST, sentence)))
                }
                Ok(Some(Line::Text(line))) => server.receive(&line, &sender),
            };
            if let Some(answer) = answer
                && let Err(error) = server.write(&answer)
            {
                break Err(error);
            }
        };
        drop(sender);
        // The client has gone, so no caller waits for a recording.
        if let Some(recorder) = &options.recorder {
            recorder.is_closed.store(true, Ordering::Release);
        }
        read
    })
}

impl<W: Write> Server<'_, W> {
    fn write(&self, message: &Value) -> io::Result<()> {
        let mut line = message.to_string();
        line.push('\n');
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.write_all(line.as_bytes())?;
        output.flush()
    }

    fn stop_recording(&self) {
        if let Some(recorder) = &self.options.recorder {
            recorder.stop.store(true, Ordering::Release);
        }
    }

    /// Returns the answer, or `None` if there is none yet or none is due.
    fn receive(&self, line: &[u8], calls: &SyncSender<Call>) -> Option<Value> {
        let message: Value = match serde_json::from_slice(line) {
            Ok(message) => message,
            Err(error) => return Some(failure(&Value::Null, (PARSE, format!("this is no JSON: {error}")))),
        };
        let Some(object) = message.as_object() else {
            return Some(failure(&Value::Null, (INVALID_REQUEST, "a message must be one object".into())));
        };
        let Some(method) = object.get("method") else {
            // An answer to a request that we never sent is ignored.
            let is_answer = object.contains_key("result") || object.contains_key("error");
            return (!is_answer).then(|| failure(&Value::Null, (INVALID_REQUEST, "the message has no method".into())));
        };
        let params = object.get("params").unwrap_or(&Value::Null);
        let Some(id) = object.get("id") else {
            self.notice(method, params);
            return None;
        };
        if !(id.is_string() || id.is_number()) || id.to_string().len() > 1000 {
            return Some(failure(&Value::Null, (INVALID_REQUEST, "`id` must be a short string or a number".into())));
        }
        let Some(method) = method.as_str() else {
            return Some(failure(id, (INVALID_REQUEST, "`method` must be a string".into())));
        };
        match self.answer(method, id, params, calls) {
            Ok(result) => result.map(|result| json!({ "jsonrpc": "2.0", "id": id, "result": result })),
            Err(error) => Some(failure(id, error)),
        }
    }

    fn notice(&self, method: &Value, params: &Value) {
        if method != "notifications/cancelled" {
            return;
        }
        let Some(id) = params.get("requestId") else { return };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.running.as_ref() == Some(id) {
            self.stop_recording();
        } else {
            calls.waiting.retain(|waiting| waiting != id);
        }
    }

    /// Returns `None` if another thread works on the answer.
    fn answer(
        &self,
        method: &str,
        id: &Value,
        params: &Value,
        calls: &SyncSender<Call>,
    ) -> Result<Option<Value>, Failure> {
        let can_record = self.options.recorder.is_some();
        match method {
            "initialize" => Ok(Some(self.initialize(params))),
            "ping" => Ok(Some(json!({}))),
            "tools/list" => Ok(Some(tools::list(can_record))),
            "prompts/list" => Ok(Some(prompts::list())),
            "prompts/get" => prompts::get(params).map(Some).map_err(|sentence| (INVALID_PARAMS, sentence)),
            "tools/call" => {
                let call = call(id, params, can_record).map_err(|sentence| (INVALID_PARAMS, sentence))?;
                // Listed first, because the other thread may take the call at once.
                let mut list = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
                list.waiting.push(id.clone());
                let Err(error) = calls.try_send(call) else { return Ok(None) };
                list.waiting.pop();
                Err(match error {
                    TrySendError::Full(_) => (BUSY, format!("{WAITING} calls wait already")),
                    TrySendError::Disconnected(_) => (BUSY, "the server is about to end".into()),
                })
            }
            _ => Err((NO_METHOD, format!("there is no method `{}`", shortened(method)))),
        }
    }

    fn initialize(&self, params: &Value) -> Value {
        let asked = params["protocolVersion"].as_str();
        let version = VERSIONS.into_iter().find(|version| Some(*version) == asked).unwrap_or(VERSIONS[0]);
        json!({
            "protocolVersion": version,
            "capabilities": { "tools": {}, "prompts": {} },
            "serverInfo": { "name": "heaptrack", "title": "heaptrack", "version": self.options.version },
            "instructions": INSTRUCTIONS,
        })
    }

    /// Works on calls until the sender has gone.
    fn work(&self, calls: &Receiver<Call>) {
        let recorder = self.options.recorder.as_ref();
        let mut context = Context { folders: &self.options.folders, traces: Traces::default(), recorder };
        while let Ok(Call { id, tool, arguments }) = calls.recv() {
            if !self.begin(&id) {
                continue;
            }
            // A reader of foreign files must not panic. If one does, this question has no answer, and the server goes on.
            let answer = catch_unwind(AssertUnwindSafe(|| tool.call(&mut context, &arguments)));
            let answer = answer.unwrap_or_else(|_| {
                context.traces = Traces::default();
                Err("this question cannot be answered, because of a fault in heaptrack".into())
            });
            self.calls.lock().unwrap_or_else(PoisonError::into_inner).running = None;
            let message = json!({ "jsonrpc": "2.0", "id": id, "result": result(answer) });
            if self.write(&message).is_err() {
                return;
            }
        }
    }

    /// Returns false if the call was cancelled while it waited. Such a call gets no answer.
    fn begin(&self, id: &Value) -> bool {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = calls.waiting.iter().position(|waiting| waiting == id) else { return false };
        calls.waiting.remove(at);
        calls.running = Some(id.clone());
        if let Some(recorder) = &self.options.recorder {
            recorder.stop.store(false, Ordering::Release);
        }
        true
    }
}

/// The call of a tool. The error is a sentence.
fn call(id: &Value, params: &Value, can_record: bool) -> Result<Call, String> {
    let name = params["name"].as_str().ok_or("`name` must be a string")?;
    let tool = Tool::find(name, can_record).ok_or_else(|| match Tool::find(name, true) {
        Some(_) => format!("`{name}` is not allowed; the user must start the server with --allow-record"),
        None => format!("there is no tool `{}`", shortened(name)),
    })?;
    let arguments = match params.get("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments.clone(),
        Some(_) => return Err("`arguments` must be an object".into()),
    };
    Ok(Call { id: id.clone(), tool, arguments })
}

/// The result of a call. A mistake in the arguments is a result, too, because the agent is to read it.
fn result(answer: Result<Value, String>) -> Value {
    match answer {
        Ok(answer) => {
            let content = json!({ "type": "text", "text": answer.to_string() });
            json!({ "content": [content], "structuredContent": answer, "isError": false })
        }
        Err(sentence) => json!({ "content": [{ "type": "text", "text": sentence }], "isError": true }),
    }
}

fn failure(id: &Value, (code, sentence): Failure) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": sentence } })
}

#[cfg(test)]
mod tests;
