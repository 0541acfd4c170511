fn main() {
    rmlx_app::run();
}
