module github.com/ledgerd/ledger/bench

go 1.26.0

require (
	github.com/ledgerd/ledger v0.0.0
	go.etcd.io/bbolt v1.5.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/chmduquesne/rollinghash v4.0.0+incompatible // indirect
	github.com/dchest/siphash v1.2.3 // indirect
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/tidwall/btree v1.8.2 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/ledgerd/ledger => ../
