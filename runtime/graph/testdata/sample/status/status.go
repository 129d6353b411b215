// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package status serves what others have to tell.
package status

import (
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/idle"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Route is something to serve.
type Route struct{ Path string }

// Offer is a route for the server.
type Offer struct {
	cell.Out
	Route Route `group:"routes"`
}

type routes struct {
	cell.In
	Routes []Route `group:"routes"`
}

// Server serves the routes.
type Server struct{}

func newServer(routes) *Server     { return &Server{} }
func serve(*Server) lifecycle.Hook { return idle.Hook() }

// Cell is the module.
var Cell = cell.Module("status", "Serves health and metrics over HTTP",
	cell.Provide(newServer),
	cell.Hook("serve", serve),
)
