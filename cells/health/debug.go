// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"sync"
	"time"

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
	s := newServer("pprof", mux, log, h, tcp(net.JoinHostPort(c.OperatorPprofAddress, strconv.Itoa(int(c.OperatorPprofPort)))))
	s.onStart = func() {
		runtime.SetBlockProfileRate(c.OperatorPprofBlockProfileRate)
		runtime.SetMutexProfileFraction(c.OperatorPprofMutexProfileFraction)
	}
	s.onStop = func() {
		runtime.SetBlockProfileRate(0)
		runtime.SetMutexProfileFraction(0)
	}
	return s
}

// gops lets the gops tool in. While it cannot be had, nothing else suffers. It
// implements lifecycle.Hook.
type gops struct {
	address string
	log     *slog.Logger
	health  health.Reporter

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// gopsAgent is held by who has the agent: the tool allows one per process.
var gopsAgent sync.Mutex

var errOtherAgent = errors.New("another operator of this process has the agent")

func newGops(c Config, log *slog.Logger, h health.Reporter) lifecycle.Hook {
	if !c.EnableGops {
		return nil
	}
	return &gops{address: fmt.Sprintf("127.0.0.1:%d", c.GopsPort), log: log, health: h.Part("gops")}
}

// Start tries once before it returns, and goes on trying where that fails.
func (g *gops) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	err := g.listen()
	if err != nil {
		g.log.Warn("the gops tool cannot look at this process yet, trying on", "error", err)
	}
	g.done.Go(func() { g.run(ctx, err == nil) })
	return nil
}

// run gets the agent where it is not there yet, and ends it when ctx ends.
func (g *gops) run(ctx context.Context, listening bool) {
	retry := time.NewTicker(retryPort)
	defer retry.Stop()
	for !listening {
		select {
		case <-ctx.Done():
			return
		case <-retry.C:
			listening = g.listen() == nil
		}
	}
	<-ctx.Done()
	closeAgent()
}

func (g *gops) listen() (err error) {
	defer func() {
		if err != nil {
			g.health.Degraded("not served; tried every "+retryPort.String(), err)
		}
	}()
	if !gopsAgent.TryLock() {
		return errOtherAgent
	}
	if err := agent.Listen(agent.Options{Addr: g.address}); err != nil {
		closeAgent() // it may be half there
		return err
	}
	g.health.OK("serving at " + g.address)
	return nil
}

func closeAgent() {
	agent.Close()
	gopsAgent.Unlock()
}

// Stop implements lifecycle.Hook.
func (g *gops) Stop(context.Context) error {
	g.cancel()
	g.done.Wait()
	return nil
}
