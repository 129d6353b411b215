// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package kvstore talks to etcd.
package kvstore

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/idle"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Config says where etcd is.
type Config struct {
	KVStore    string
	KVStoreOpt map[string]string
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.String("kvstore", c.KVStore, "Key-value store to use")
	fs.StringToString("kvstore-opt", c.KVStoreOpt, "Options of the key-value store")
}

// Client talks to etcd.
type Client struct{}

func newClient(Config) *Client       { return &Client{} }
func connect(*Client) lifecycle.Hook { return idle.Hook() }

var inUse = cell.When("the kvstore is in use", []string{"kvstore"}, func(c Config) bool { return c.KVStore != "" })

// Cell is the module.
var Cell = cell.Module("kvstore", "The etcd client, its leases and the shared store",
	cell.Config(Config{}),
	cell.EnabledBy(inUse),
	cell.Provide(newClient),
	cell.Hook("connect", connect),
)

// HeartbeatConfig says how often to beat.
type HeartbeatConfig struct{ HeartbeatInterval time.Duration }

// Flags implements cell.Flagger.
func (c HeartbeatConfig) Flags(fs *pflag.FlagSet) {
	fs.Duration("heartbeat-interval", c.HeartbeatInterval, "Time between heartbeats")
}

func newBeater(HeartbeatConfig, *Client) job.Job { return idle.Job() }

// Heartbeat is a module that needs the kvstore.
var Heartbeat = cell.Module("heartbeat", "Proves to agents that the kvstore takes writes",
	cell.Config(HeartbeatConfig{HeartbeatInterval: time.Minute}),
	cell.EnabledBy(inUse),
	cell.Job("beat", newBeater),
)
