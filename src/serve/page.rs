//! The page at `/metrics`. It is rendered at a limited rate, and all responses share it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Factor for caching: a page is kept 20 times as long as its rendering took, so rendering uses at most 5 % of the thread.
const REST: u32 = 20;

/// Maximum number of pages in memory: the newest, and older ones that are still being sent to slow clients.
const PAGES: usize = 3;

/// The page at `/metrics`. Cheap to clone; all clones share one page.
#[derive(Clone)]
pub struct MetricsPage(Arc<Shared>);

struct Shared {
    render: Box<dyn Fn() -> String + Send + Sync>,
    newest: Mutex<Option<Rendered>>,
    places: Arc<Semaphore>,
}

struct Rendered {
    bytes: Bytes,
    fresh_until: Instant,
}

/// Text of a page with its permit. The permit is released once the text is no longer needed for any response.
struct Placed {
    text: String,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Placed {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl MetricsPage {
    /// Creates a page from the function that renders it.
    pub fn new(render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            render: Box::new(render),
            newest: Mutex::default(),
            places: Arc::new(Semaphore::new(PAGES)),
        }))
    }

    /// Returns the page. Renders a new one if the last one is too old, unless slow clients still need too many old pages.
    pub(super) fn bytes(&self) -> Bytes {
        let mut newest = self.0.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        if let Some(page) = newest.as_ref().filter(|page| began < page.fresh_until) {
            return page.bytes.clone();
        }
        let Ok(place) = self.0.places.clone().try_acquire_owned() else {
            // All permits are in use, so a page exists: the newest page also holds a permit.
            let newest = newest.as_ref().map(|page| page.bytes.clone());
            return newest.unwrap_or_default();
        };
        let mut text = (self.0.render)();
        text.shrink_to_fit();
        let ended = Instant::now();
        let page = Rendered {
            bytes: Bytes::from_owner(Placed {
                text,
                _place: place,
            }),
            fresh_until: ended + ended.duration_since(began) * REST,
        };
        newest.insert(page).bytes.clone()
    }
}

impl fmt::Debug for MetricsPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsPage").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn counted(took: Duration) -> (MetricsPage, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let rendered = count.clone();
        let page = MetricsPage::new(move || {
            std::thread::sleep(took);
            rendered.fetch_add(1, Ordering::Relaxed).to_string()
        });
        (page, count)
    }

    #[test]
    fn a_slowly_rendered_page_is_shared_by_many_responses() {
        let (page, count) = counted(Duration::from_secs(1));
        for _ in 0..1000 {
            assert_eq!(page.bytes(), "0");
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_readers_hold_at_most_a_few_pages() {
        let (page, count) = counted(Duration::ZERO);
        let held: Vec<Bytes> = (0..100).map(|_| page.bytes()).collect();
        assert_eq!(count.load(Ordering::Relaxed), PAGES);
        assert_eq!(held.last().map(|page| &page[..]), Some(&b"2"[..]));
        drop(held);
        assert_eq!([page.bytes(), page.bytes()], ["3", "4"]);
    }
}
