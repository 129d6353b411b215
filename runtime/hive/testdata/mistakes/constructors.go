// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mistakes

import (
	"errors"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive/testdata/mistakes/kvstore"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

func newFailing() (*kvstore.Client, error) {
	return nil, errors.New("parsing etcd.config: no endpoints\nsecond line of the error")
}

func newPanicking() *kvstore.Client {
	var clients []*kvstore.Client
	return clients[len(clients)]
}

func newHeartOf(*kvstore.Client) *heart { return nil }

func failToServe() (lifecycle.Hook, error) { return nil, errors.New("no port is free") }

func failToCheck() error { return errors.New("the kernel is too old") }

var constructors = []Case{
	{Name: "failed-constructor", Cells: cell.Set(
		cell.Module("kvstore", "Fails", cell.Provide(newFailing)),
		cell.Module("heartbeat", "Needs it", cell.Provide(newHeartOf), cell.Hook("beat", serveHeart)))},
	{Name: "panicking-constructor", Cells: cell.Set(
		cell.Module("kvstore", "Panics", cell.Provide(newPanicking)),
		cell.Module("heartbeat", "Needs it", cell.Provide(newHeartOf), cell.Hook("beat", serveHeart)))},
	{Name: "several-failed-constructors", Cells: cell.Set(
		cell.Module("kvstore", "Fails", cell.Provide(newFailing), cell.Hook("dial", serveClient)),
		cell.Module("api", "Fails to make its hook", cell.Hook("serve", failToServe)),
		cell.Module("kernel", "Fails its invoke", cell.Invoke(failToCheck)))},
	{Name: "failed-constructor-in-a-term", Cells: cell.Set(entering,
		cell.Term("leader", cell.Module("kvstore", "Fails", cell.Provide(newFailing), cell.Hook("dial", serveClient))))},
}
