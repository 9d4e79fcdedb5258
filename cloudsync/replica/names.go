package replica

import (
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

// packNames says where packs are: those that the state knows in the directories of their epochs,
// others in that of into. The state may be nil.
type packNames struct {
	names wire.Names
	state func() *State
	into  epoch.ID
}

var _ pack.Names = packNames{}

func (n packNames) dir(id epoch.ID) epoch.ID {
	if n.state != nil && id != (epoch.ID{}) {
		if p, ok := n.state().pack(id); ok {
			return p.Epoch
		}
	}
	return n.into
}

// Pack implements pack.Names.
func (n packNames) Pack(id epoch.ID) string { return n.names.Pack(n.dir(id), id) }

// PackLabelOf implements pack.Names.
func (n packNames) PackLabelOf(id epoch.ID) seal.Label { return n.names.PackLabel(n.dir(id)) }

// PackNames says where the packs of the log are, for a Fetcher. It may be used concurrently with
// the calls of the Page.
func (p *Page) PackNames() pack.Names {
	return packNames{names: p.o.Names, state: p.shared.Load}
}

// PacksIn says where the packs of one epoch are.
func PacksIn(n wire.Names, e epoch.ID) pack.Names { return packNames{names: n, into: e} }
