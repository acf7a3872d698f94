"""How the tokens of a batch lie in memory: as rows with padding, or flat.

Dense layers and norms see flat states (N, D); only attention needs rows. A layout maps between them:

    rows  [the cat sat - -]      flat, dense      [the cat sat - - a dog - - -]   N = B * T
          [a   dog -   - -]      flat, unpadded   [the cat sat a dog]             N = real tokens

Both give the same states on real tokens. Dense has static shapes (XLA, TPU). Unpadded computes nothing
on padding, but N changes from batch to batch. Packed is dense, with several examples in a row that do
not see each other: static shapes and little padding. Where only some tokens of each row matter, a
`SelectedLayout` holds those.
"""

from keras import ops


class DenseLayout:
    """Every slot of every row is a token: a reshape.

    Shapes (B rows, T slots, N = B * T):
        padding_mask  (B, T)       bool or int, 1 = real token
        positions     (1 or B, T)  int32, position of each slot in its row
        slots         (N,)         int32, row * T + position of each flat token
    """

    supports_jit = True

    def __init__(self, padding_mask):
        self.padding_mask = ops.cast(padding_mask, "bool")
        self.rows, self.length = ops.shape(padding_mask)
        self.positions = ops.arange(self.length, dtype="int32")[None, :]
        self.slots = ops.arange(self.rows * self.length, dtype="int32")

    def to_flat(self, x):
        """(B, T, ...) -> (N, ...)"""
        return ops.reshape(x, (-1, *x.shape[2:]))

    def to_rows(self, x):
        """(N, ...) -> (B, T, ...)"""
        return ops.reshape(x, (self.rows, self.length, *x.shape[1:]))

    def visible(self, selected):
        """Which slots each selected slot sees: (B, 1, 1, T) bool, the same for all of a row."""
        return self.padding_mask[:, None, None, :]


class PackedLayout(DenseLayout):
    """Every slot is a token, and sees those of its own example.

    Shapes (B rows, T slots): as DenseLayout, and
        example_ids  (B, T)  int, 0 = padding, 1.. = which example of the row
    """

    def __init__(self, example_ids):
        super().__init__(example_ids > 0)
        self.example_ids = example_ids

    def visible(self, selected):
        """(B, 1, P, T) bool"""
        mine = ops.take_along_axis(
            self.example_ids, ops.broadcast_to(selected.positions, (self.rows, selected.length)), axis=1
        )
        is_same = ops.equal(mine[:, :, None], self.example_ids[:, None, :])
        return ops.logical_and(is_same, self.padding_mask[:, None, :])[:, None]


class UnpaddedLayout(DenseLayout):
    """Only real tokens are computed: a gather into flat, a scatter of zeros and tokens into rows.

    Shapes (B rows, T slots, N = number of real tokens): as DenseLayout.
    """

    supports_jit = False

    def __init__(self, padding_mask):
        super().__init__(padding_mask)
        (self.slots,) = ops.nonzero(ops.reshape(self.padding_mask, (-1,)))

    def to_flat(self, x):
        """(B, T, ...) -> (N, ...)"""
        return ops.take(super().to_flat(x), self.slots, axis=0)

    def to_rows(self, x):
        """(N, ...) -> (B, T, ...), zero at padding"""
        slots = (self.rows * self.length, *x.shape[1:])
        return super().to_rows(ops.scatter(self.slots[:, None], x, slots))


class SelectedLayout(DenseLayout):
    """Some slots of each row of another layout, in any order, repeated or not.

    Shapes (B rows, T slots of the other layout, P selected slots, N = B * P):
        positions  (B, P)  int32, of each selected slot in its row
        slots      (N,)    int32, row * T + position: the name that the token has there
    """

    def __init__(self, layout, positions):
        self.source = layout
        self.positions = ops.cast(positions, "int32")
        self.rows, self.length = ops.shape(positions)
        first_slots = ops.arange(self.rows, dtype="int32")[:, None] * layout.length
        self.slots = ops.reshape(first_slots + self.positions, (-1,))

    def select(self, x):
        """Flat tokens of the other layout -> (N, ...)"""
        rows = self.source.to_rows(x)
        return ops.take(ops.reshape(rows, (-1, *rows.shape[2:])), self.slots, axis=0)


LAYOUTS = {"dense": DenseLayout, "unpadded": UnpaddedLayout}
