//! Any text as a chat template: it renders or ends as an error, in bounded time and memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmlx_engine::text::{ChatTemplate, Conversation, End, SpecialTokens};
use serde_json::json;
use time::OffsetDateTime;

fuzz_target!(|source: &str| {
    let Ok(template) = ChatTemplate::from_source(source, &SpecialTokens::default()) else { return };
    let messages = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": [{"type": "text", "text": "Hi <b>"}]}),
        json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"items": [1.5, null]}}}]}),
    ];
    let variables = json!({"tools": [{"function": {"name": "f"}}], "enable_thinking": false});
    let Some(variables) = variables.as_object() else { return };
    for end in [End::NextMessage, End::OpenMessage, End::Closed] {
        let _ = template.render(&Conversation { messages: &messages, variables, end, now: OffsetDateTime::UNIX_EPOCH });
    }
});
