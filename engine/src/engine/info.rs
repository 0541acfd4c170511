use crate::api::{ModelEntry, ModelInfo};
use crate::error::{Error, Result};
pub fn info(_m: &str) -> Result<ModelInfo> { Err(Error::Internal("later".into())) }
pub fn list() -> Result<Vec<ModelEntry>> { Ok(vec![]) }
