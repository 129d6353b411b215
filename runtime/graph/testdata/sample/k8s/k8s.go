// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package k8s talks to the API server.
package k8s

import (
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/idle"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Config says how fast to talk.
type Config struct{ OperatorK8sClientQPS float32 }

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Float32("operator-k8s-client-qps", c.OperatorK8sClientQPS, "Queries per second to the API server")
}

// Client is a module's client.
type Client struct{}

type transport struct{}

func newTransport(Config) *transport                { return &transport{} }
func newClient(cell.ModuleInfo, *transport) *Client { return &Client{} }
func connect(*transport) (lifecycle.Hook, error)    { return idle.Hook(), nil }

// Cell is the module.
var Cell = cell.Module("k8s", "One client per module behind one door for writes",
	cell.Config(Config{OperatorK8sClientQPS: 100}),
	cell.ProvidePrivate(newTransport),
	cell.ProvidePerModule(newClient),
	cell.Hook("connect", connect),
)
