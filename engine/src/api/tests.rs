//! The types that the window uses, as TypeScript: `ui/src/gen/api.ts`. `RMLX_WRITE_TYPES=1 cargo test -p rmlx-engine --lib api` writes it.

use std::fs;
use std::path::Path;

use ts_rs::{Config, TS};

use super::*;

fn typescript() -> String {
    // Numbers that cross here stay below 2^53.
    let config = Config::new().with_large_int("number");
    let mut page = String::from("// Made from engine/src/api.rs by its test. Do not edit.\n");
    let mut add = |declaration: String| {
        page.push_str("\nexport ");
        page.push_str(&declaration);
        page.push('\n');
    };
    macro_rules! all {
        ($($name:ident),* $(,)?) => { $(add($name::decl(&config));)* };
    }
    all![
        Activity,
        ActivityState,
        AnswerInfo,
        AnswerState,
        Ask,
        CatalogueEntry,
        ChatSettings,
        ConversationEntry,
        DiskRoom,
        EndpointSettings,
        EndpointState,
        ErrorInfo,
        Event,
        FileCheck,
        FileState,
        FinishReason,
        Finished,
        Found,
        HubModel,
        LoadStage,
        MemoryNeed,
        ModelEntry,
        ModelInfo,
        ModelSettings,
        ModelSource,
        Pull,
        PullFile,
        PullOptions,
        PullPhase,
        PullPlan,
        Quantization,
        Role,
        Settings,
        Status,
        Task,
        Theme,
        Thread,
        ThreadMessage,
        Timings,
        TokenKept,
        TokenLogprob,
        TokenState,
        Turn,
        Usage,
    ];
    page
}

#[test]
fn the_typescript_of_the_window_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui/src/gen/api.ts");
    let made = typescript();
    if std::env::var_os("RMLX_WRITE_TYPES").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &made).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == made,
        "ui/src/gen/api.ts is not what engine/src/api.rs says: {}",
        line!()
    );
}
