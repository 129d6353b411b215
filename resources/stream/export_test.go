// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/stream/internal/reflector"
)

// Planning makes the streams of a source show a plan.
func Planning(s *Source, p *dryrun.Plan) *Source {
	s.plan = p
	return s
}

// WithMemory bounds the large objects of a source as in a process with a limit to its memory.
func WithMemory(s *Source, limit int64) *Source {
	s.memory = reflector.NewMemory(limit)
	return s
}
