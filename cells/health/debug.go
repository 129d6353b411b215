// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"runtime"

	"github.com/google/gops/agent"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

func newPprof(c Config, log *slog.Logger, h health.Reporter) lifecycle.Hook {
	if !c.OperatorPprof {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	runtime.SetBlockProfileRate(c.OperatorPprofBlockProfileRate)
	runtime.SetMutexProfileFraction(c.OperatorPprofMutexProfileFraction)
	return newServer("pprof", mux, log, h, tcp(c.pprofAddress()))
}

// newGops lets the gops tool in. The tool allows one agent per process; where
// it cannot be had, nothing else suffers.
func newGops(c Config, log *slog.Logger, h health.Reporter) lifecycle.Hook {
	if !c.EnableGops {
		return nil
	}
	started := false
	return lifecycle.Funcs{
		OnStart: func(context.Context) error {
			err := agent.Listen(agent.Options{Addr: fmt.Sprintf("127.0.0.1:%d", c.GopsPort), ReuseSocketAddrAndPort: false})
			if err != nil {
				h.Part("gops").Degraded("not served", err)
				log.Warn("the gops tool cannot look at this process", "error", err)
			}
			started = err == nil
			return nil
		},
		OnStop: func(context.Context) error {
			if started {
				agent.Close()
			}
			return nil
		},
	}
}
