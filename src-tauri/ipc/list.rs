// The command list: `topic::command`, where the topic is a file of this folder. Both the app (its handler) and the build script
// (the permissions) read it; `capabilities/main.json` grants what the page may call, and `ui/src/ipc.ts` calls it.
macro_rules! commands {
    ($then:ident) => {
        $then![
            app::app_info,
            app::activity_get,
            app::link_open,
            app::page_state_get,
            app::page_state_set,
            models::models_list,
            models::model_load,
            models::model_load_stop,
            models::model_unload,
            models::model_verify,
            models::model_verify_stop,
            models::model_remove,
            hub::catalogue_list,
            hub::hub_search,
            hub::pull_plan,
            hub::pull_start,
            hub::pulls_list,
            hub::pull_pause,
            hub::pull_cancel,
            hub::token_get,
            hub::token_set,
            chat::conversations_list,
            chat::conversation_get,
            chat::conversation_rename,
            chat::conversation_delete,
            chat::conversation_restore,
            chat::conversation_select,
            chat::chat_send,
            chat::chat_follow,
            chat::chat_stop,
            settings::settings_get,
            settings::settings_set,
            endpoint::endpoint_get,
            endpoint::endpoint_set,
        ]
    };
}
