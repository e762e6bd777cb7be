//! A model of PyTorch's native caching allocator with its default settings, for one stream: what it
//! counts, without a GPU.
//!
//! Rules and sizes are those of PyTorch 2.11 (`c10/core/AllocatorConfig.h` and the public
//! documentation of CUDA memory management); they were checked against measured counters on an
//! H200. All sizes are bytes.

use std::collections::BTreeSet;

/// Every size is rounded up to a multiple of it.
const ROUNDING: u64 = 512;
/// Requests up to this size live in the small pool.
const SMALL_REQUEST: u64 = 1 << 20;
/// Segments of the small pool.
const SMALL_SEGMENT: u64 = 2 << 20;
/// Segments of the large pool for requests below [`OWN_SEGMENT`].
const LARGE_SEGMENT: u64 = 20 << 20;
/// Requests from this size on get a segment that is no larger than needed.
const OWN_SEGMENT: u64 = 10 << 20;
/// Such a segment is a multiple of it.
const SEGMENT_ROUNDING: u64 = 2 << 20;

/// The allocator's counters, in bytes. `allocated` is part of `reserved`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// In blocks that are in use, rounding included.
    pub allocated: u64,
    /// In segments, whether in use or not.
    pub reserved: u64,
    /// Maximum of `allocated` since the last reset.
    pub peak_allocated: u64,
    /// Maximum of `reserved` since the last reset.
    pub peak_reserved: u64,
}

/// A block in use. Giving it back consumes it: nothing is freed twice.
#[derive(Debug, PartialEq, Eq)]
pub struct BlockId(usize);

/// The model. Segments are never given back, as long as memory does not run out.
#[derive(Clone, Debug, Default)]
pub struct CachingAllocator {
    blocks: Vec<Block>,
    /// Places in `blocks` that can be used again.
    vacant: Vec<usize>,
    free: [BTreeSet<FreeBlock>; 2],
    counters: Counters,
    next_address: u64,
}

/// A stretch of a segment; its neighbours are those of the same segment.
#[derive(Clone, Debug)]
struct Block {
    address: u64,
    size: u64,
    pool: Pool,
    is_free: bool,
    before: Option<usize>,
    after: Option<usize>,
}

/// In the order in which free blocks are looked for: by size, then by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FreeBlock {
    size: u64,
    address: u64,
    block: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Small,
    Large,
}

impl Pool {
    fn of(size: u64) -> Self {
        if size <= SMALL_REQUEST { Self::Small } else { Self::Large }
    }

    /// Whether what a block has too much becomes a block of its own; otherwise all of it counts as
    /// allocated.
    fn splits(self, rest: u64) -> bool {
        match self {
            Self::Small => rest >= ROUNDING,
            Self::Large => rest > SMALL_REQUEST,
        }
    }
}

fn segment_size(size: u64) -> u64 {
    match Pool::of(size) {
        Pool::Small => SMALL_SEGMENT,
        Pool::Large if size < OWN_SEGMENT => LARGE_SEGMENT,
        Pool::Large => size.next_multiple_of(SEGMENT_ROUNDING),
    }
}

impl CachingAllocator {
    /// An allocator that has reserved nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a block of at least `bytes`, at least one: the smallest free one that fits, else a new
    /// segment. The sum of all segments stays below 2^64.
    pub fn allocate(&mut self, bytes: u64) -> BlockId {
        let size = bytes.max(1).next_multiple_of(ROUNDING);
        let pool = Pool::of(size);
        let smallest = FreeBlock { size, address: 0, block: 0 };
        let found = self.free[pool as usize].range(smallest..).next().copied();
        let block = match found {
            Some(free) => {
                self.free[pool as usize].remove(&free);
                free.block
            }
            None => self.new_segment(size, pool),
        };
        if pool.splits(self.blocks[block].size - size) {
            self.split(block, size);
        }
        self.blocks[block].is_free = false;
        self.counters.allocated += self.blocks[block].size;
        self.counters.peak_allocated = self.counters.peak_allocated.max(self.counters.allocated);
        BlockId(block)
    }

    /// Gives a block back; free neighbours become one block.
    pub fn free(&mut self, BlockId(block): BlockId) {
        self.counters.allocated -= self.blocks[block].size;
        let first = self.merged_with_next(block, self.blocks[block].before).unwrap_or(block);
        if let Some(after) = self.blocks[first].after {
            self.merged_with_next(after, Some(first));
        }
        let Block { address, size, pool, .. } = self.blocks[first];
        self.blocks[first].is_free = true;
        self.free[pool as usize].insert(FreeBlock { size, address, block: first });
    }

    /// The counters now.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Starts counting peaks anew.
    pub fn reset_peaks(&mut self) {
        self.counters.peak_allocated = self.counters.allocated;
        self.counters.peak_reserved = self.counters.reserved;
    }

    /// Size in bytes of a block in use, rounding included.
    pub fn size_of(&self, block: &BlockId) -> u64 {
        self.blocks[block.0].size
    }

    /// Sizes and addresses of the free blocks: two moments with the same ones, and the same blocks in
    /// use, have the same future.
    pub(super) fn free_blocks(&self) -> Vec<(u64, u64)> {
        self.free.iter().flatten().map(|free| (free.address, free.size)).collect()
    }

    fn new_segment(&mut self, size: u64, pool: Pool) -> usize {
        let (address, size) = (self.next_address, segment_size(size));
        self.next_address += size;
        self.counters.reserved += size;
        self.counters.peak_reserved = self.counters.peak_reserved.max(self.counters.reserved);
        self.place(Block { address, size, pool, is_free: false, before: None, after: None })
    }

    fn split(&mut self, block: usize, size: u64) {
        let Block { address, size: whole, pool, after, .. } = self.blocks[block];
        let rest =
            Block { address: address + size, size: whole - size, pool, is_free: true, before: Some(block), after };
        let free = FreeBlock { size: rest.size, address: rest.address, block: self.place(rest) };
        if let Some(after) = after {
            self.blocks[after].before = Some(free.block);
        }
        self.blocks[block].size = size;
        self.blocks[block].after = Some(free.block);
        self.free[pool as usize].insert(free);
    }

    /// Joins `block` to the one before it when either of them, and the other, is free.
    fn merged_with_next(&mut self, block: usize, before: Option<usize>) -> Option<usize> {
        let before = before?;
        // One of the two is being freed and is in no set; the other has to be free already.
        let other = if self.blocks[before].is_free { before } else { block };
        if !self.blocks[other].is_free {
            return None;
        }
        let Block { address, size, pool, .. } = self.blocks[other];
        self.free[pool as usize].remove(&FreeBlock { size, address, block: other });
        let Block { size, after, .. } = self.blocks[block];
        self.blocks[before].size += size;
        self.blocks[before].after = after;
        self.blocks[before].is_free = false;
        if let Some(after) = after {
            self.blocks[after].before = Some(before);
        }
        self.vacant.push(block);
        Some(before)
    }

    fn place(&mut self, block: Block) -> usize {
        match self.vacant.pop() {
            Some(place) => {
                self.blocks[place] = block;
                place
            }
            None => {
                self.blocks.push(block);
                self.blocks.len() - 1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn counters(allocated: u64, reserved: u64) -> impl Fn(&CachingAllocator) {
        move |allocator| {
            let now = allocator.counters();
            assert_eq!((now.allocated, now.reserved), (allocated, reserved));
        }
    }

    #[test]
    fn sizes_are_rounded_and_pools_have_their_segments() {
        // Request, block, segment: the rules as PyTorch documents them.
        let cases = [
            (1, 512, 2 * MIB),
            (512, 512, 2 * MIB),
            (513, 1024, 2 * MIB),
            (MIB, MIB, 2 * MIB),
            (MIB + 1, MIB + 512, 20 * MIB),
            (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
            // What is left of a segment of its own is at most 1 MiB: all of it counts.
            (10 * MIB, 10 * MIB, 10 * MIB),
            (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
            (11 * MIB, 12 * MIB, 12 * MIB),
            (32 * MIB, 32 * MIB, 32 * MIB),
        ];
        for (request, block, segment) in cases {
            let mut allocator = CachingAllocator::new();
            let id = allocator.allocate(request);
            assert_eq!(allocator.size_of(&id), block, "{request}");
            counters(block, segment)(&allocator);
        }
    }

    #[test]
    fn the_smallest_block_that_fits_is_taken_then_the_lowest_address() {
        let mut allocator = CachingAllocator::new();
        let segments: Vec<BlockId> = [16, 12, 12].into_iter().map(|mib| allocator.allocate(mib * MIB)).collect();
        for block in segments {
            allocator.free(block);
        }
        let small = allocator.allocate(11 * MIB);
        assert_eq!(allocator.blocks[small.0].address, 16 * MIB);
        let next = allocator.allocate(11 * MIB);
        assert_eq!(allocator.blocks[next.0].address, 28 * MIB);
        let last = allocator.allocate(11 * MIB);
        assert_eq!(allocator.blocks[last.0].address, 0);
        counters(12 * MIB + 12 * MIB + 11 * MIB, 40 * MIB)(&allocator);
    }

    #[test]
    fn a_free_block_of_the_other_pool_is_not_taken() {
        let mut allocator = CachingAllocator::new();
        let large = allocator.allocate(2 * MIB);
        allocator.free(large);
        allocator.allocate(512);
        counters(512, 22 * MIB)(&allocator);
    }

    #[test]
    fn neighbours_merge_in_whatever_order_they_are_freed() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut allocator = CachingAllocator::new();
            let mut blocks: Vec<Option<BlockId>> = (0..3).map(|_| Some(allocator.allocate(600 * 1024))).collect();
            for place in order {
                if let Some(block) = blocks[place].take() {
                    allocator.free(block);
                }
            }
            // The whole segment is one free block again.
            assert_eq!(allocator.free_blocks(), [(0, 2 * MIB)], "{order:?}");
            counters(0, 2 * MIB)(&allocator);
        }
    }

    #[test]
    fn peaks_start_from_a_reset() {
        let mut allocator = CachingAllocator::new();
        let block = allocator.allocate(3 * MIB);
        allocator.free(block);
        allocator.reset_peaks();
        assert_eq!(
            allocator.counters(),
            Counters { allocated: 0, reserved: 20 * MIB, peak_allocated: 0, peak_reserved: 20 * MIB }
        );
    }
}
