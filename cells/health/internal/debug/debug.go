// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package debug serves profiles, and runs the gops agent.
package debug

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

	"github.com/skep-operator/skep/cells/health/internal/httpserver"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// PprofConfig is the options of pprof.
type PprofConfig struct {
	OperatorPprof                     bool   `flag:"operator-pprof" usage:"Serve pprof profiles"`
	OperatorPprofAddress              string `flag:"operator-pprof-address" usage:"Address of the pprof server"`
	OperatorPprofPort                 uint16 `flag:"operator-pprof-port" usage:"Port of the pprof server"`
	OperatorPprofBlockProfileRate     int    `flag:"operator-pprof-block-profile-rate" usage:"Sampling rate of the block profile, in nanoseconds of blocking per sample; 0 disables it"`
	OperatorPprofMutexProfileFraction int    `flag:"operator-pprof-mutex-profile-fraction" usage:"Sampling rate of the mutex profile: one in this many events; 0 disables it"`
}

// GopsConfig is the options of gops.
type GopsConfig struct {
	EnableGops bool   `flag:"enable-gops" usage:"Run the gops agent"`
	GopsPort   uint16 `flag:"gops-port" usage:"Port of the gops agent on 127.0.0.1"`
}

// NewPprof returns the server of profiles, nil if it is disabled.
func NewPprof(c PprofConfig, log *slog.Logger, h health.Reporter) lifecycle.Hook {
	if !c.OperatorPprof {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := httpserver.New("pprof", httpserver.Lasting, mux, log, h, httpserver.TCP(net.JoinHostPort(c.OperatorPprofAddress, strconv.Itoa(int(c.OperatorPprofPort)))))
	s.OnStart = func() {
		runtime.SetBlockProfileRate(c.OperatorPprofBlockProfileRate)
		runtime.SetMutexProfileFraction(c.OperatorPprofMutexProfileFraction)
	}
	s.OnStop = func() {
		runtime.SetBlockProfileRate(0)
		runtime.SetMutexProfileFraction(0)
	}
	return s
}

// gops runs the agent of the gops tool. Its failure affects nothing else. It implements lifecycle.Hook.
type gops struct {
	address string
	log     *slog.Logger
	health  health.Reporter

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// gopsAgent is locked while the agent runs: the tool allows one per process.
var gopsAgent sync.Mutex

var errOtherAgent = errors.New("another operator of this process runs the agent")

// NewGops returns the agent, nil if it is disabled.
func NewGops(c GopsConfig, log *slog.Logger, h health.Reporter) lifecycle.Hook {
	if !c.EnableGops {
		return nil
	}
	return &gops{address: fmt.Sprintf("127.0.0.1:%d", c.GopsPort), log: log, health: h.Child("gops")}
}

// Start tries to listen before it returns, and retries after a failure.
func (g *gops) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	err := g.listen()
	if err != nil {
		g.log.Warn("gops agent unavailable, retrying", "error", err)
	}
	g.done.Go(func() { g.run(ctx, err == nil) })
	return nil
}

// run starts the agent unless it is listening, and closes it when ctx ends.
func (g *gops) run(ctx context.Context, listening bool) {
	retry := time.NewTicker(httpserver.RetryInterval)
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
			g.health.Degraded("not served; tried every "+httpserver.RetryInterval.String(), err)
		}
	}()
	if !gopsAgent.TryLock() {
		return errOtherAgent
	}
	if err := agent.Listen(agent.Options{Addr: g.address}); err != nil {
		closeAgent() // it may be started in part
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
