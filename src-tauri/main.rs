use std::process::ExitCode;

fn main() -> ExitCode {
    rmlx_app::run()
}
