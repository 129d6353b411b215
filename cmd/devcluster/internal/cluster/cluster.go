// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/skep-operator/skep/cmd/devcluster/internal/controlplane"
	"github.com/skep-operator/skep/cmd/devcluster/internal/etcd"
	"github.com/skep-operator/skep/cmd/devcluster/internal/faultproxy"
	"github.com/skep-operator/skep/cmd/devcluster/internal/load"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

// stopTimeout is how long the control plane may take to stop. Whatever it still
// does then ends with the process.
const stopTimeout = time.Minute

// Options describe a devcluster.
type Options struct {
	// Dir holds everything. It is made if it does not exist; what an earlier
	// devcluster with one etcd member left there is taken up again.
	Dir string
	// Started is when the process started, for the record.
	Started time.Time

	EtcdMembers       int
	EtcdTLS, EtcdAuth bool
	// EtcdProcesses makes even a single member a process of its own.
	EtcdProcesses bool

	// ControlPlane says that there is one.
	ControlPlane             bool
	AuditLevel, FeatureGates string
	// EtcdThroughProxies sends the API server through the members' proxies.
	EtcdThroughProxies bool
	// Load, if set, is written into etcd before the API server starts.
	Load     *load.Options
	Progress *load.Progress
}

// Cluster is a running devcluster.
type Cluster struct {
	opts  Options
	log   *slog.Logger
	dir   *directory
	token string

	etcd     *etcd.Cluster
	identity *controlplane.Identity
	plane    *controlplane.ControlPlane
	proxies  *proxies
	webhooks *webhooks // nil without a control plane
	server   *http.Server
	info     control.Info // without what changes

	shutdown     chan struct{}
	shutdownOnce sync.Once
}

// Start runs a devcluster and returns when it is ready.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	dir, err := openDirectory(opts.Dir)
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, dir: dir, token: rand.Text(), shutdown: make(chan struct{})}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		c.openLogs, c.startEtcd, c.openProxies, c.preload, c.startControlPlane, c.serveAdmission, c.installCRDs, c.serveControl, c.publish,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// openLogs opens one for the devcluster itself and one for Kubernetes. They stay
// open as long as the process lives.
func (c *Cluster) openLogs(context.Context) error {
	own, err := c.dir.openLog("devcluster.log")
	if err != nil {
		return err
	}
	c.log = slog.New(slog.NewTextHandler(own, &slog.HandlerOptions{Level: slog.LevelDebug}))
	kubernetes, err := c.dir.openLog("kubernetes.log")
	if err != nil {
		return err
	}
	return controlplane.LogTo(kubernetes)
}

func (c *Cluster) startEtcd(ctx context.Context) (err error) {
	data := c.dir.file("etcd")
	if _, err := os.Stat(data); err == nil && (c.opts.EtcdMembers > 1 || c.opts.EtcdProcesses) {
		return fmt.Errorf("%s has the data of an earlier etcd, whose members had other addresses: take an empty directory", c.dir.path)
	}
	c.etcd, err = etcd.Start(ctx, etcd.Options{
		Dir: data, LogDir: c.dir.file("logs"), Members: c.opts.EtcdMembers,
		Embedded: c.opts.EtcdMembers == 1 && !c.opts.EtcdProcesses,
		TLS:      c.opts.EtcdTLS, Auth: c.opts.EtcdAuth,
	})
	return err
}

// openProxies opens one before each etcd member.
func (c *Cluster) openProxies(context.Context) error {
	c.proxies = &proxies{log: c.log, etcd: map[string]string{}}
	c.info.Etcd = c.etcd.Info()
	for i, member := range c.info.Etcd.Members {
		target, err := url.Parse(member.Endpoint)
		if err != nil {
			return fmt.Errorf("parse the endpoint of etcd member %s: %w", member.Name, err)
		}
		c.proxies.etcd[member.Name] = target.Host
		if _, err := c.proxies.open(control.NewProxy{ID: member.Name, Backend: member.Name}); err != nil {
			return err
		}
		if c.info.Etcd.Members[i].ProxyEndpoint, err = c.proxies.endpoint(member); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) preload(ctx context.Context) error {
	if c.opts.Load == nil {
		return nil
	}
	client, err := c.etcd.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	return load.Direct(ctx, client, *c.opts.Load, c.opts.Progress)
}

// installCRDs makes the API server see the custom resources that were loaded.
func (c *Cluster) installCRDs(ctx context.Context) error {
	if c.opts.Load == nil {
		return nil
	}
	config, err := c.identity.ClientConfig(c.plane.URL(), controlplane.LoaderUser, controlplane.MastersGroup)
	if err != nil {
		return err
	}
	return load.InstallCRDs(ctx, config)
}

func (c *Cluster) startControlPlane(ctx context.Context) (err error) {
	if !c.opts.ControlPlane {
		return nil
	}
	if c.identity, err = controlplane.LoadIdentity(c.dir.file("pki")); err != nil {
		return err
	}
	endpoints := c.info.Etcd.Endpoints()
	if c.opts.EtcdThroughProxies {
		endpoints = c.info.Etcd.ProxyEndpoints()
	}
	c.info.AuditLog = c.dir.file("audit.log")
	c.plane, err = controlplane.Start(ctx, controlplane.Options{
		Identity: c.identity, EtcdEndpoints: endpoints,
		AuditLog: c.info.AuditLog, AuditLevel: c.opts.AuditLevel,
		LogFile: c.dir.file("logs", "kubernetes.log"), FeatureGates: c.opts.FeatureGates,
	})
	if err != nil {
		return err
	}
	c.info.APIServer = c.plane.URL()
	c.info.Kubeconfig = c.dir.file("kubeconfig")
	if err := c.identity.WriteAdminKubeconfig(c.info.Kubeconfig, c.info.APIServer); err != nil {
		return err
	}
	return c.openAPIServerProxy()
}

func (c *Cluster) openAPIServerProxy() error {
	backend, err := c.apiServerBackend()
	if err != nil {
		return err
	}
	c.proxies.apiServer, c.proxies.kubeconfig = backend, c.proxyKubeconfig
	d, err := c.proxies.open(control.NewProxy{ID: control.BackendAPIServer})
	if err != nil {
		return err
	}
	c.info.ProxyKubeconfig, c.info.ProxyAddress = d.kubeconfig, d.Address()
	return nil
}

func (c *Cluster) apiServerBackend() (*faultproxy.Backend, error) {
	target, err := url.Parse(c.plane.URL())
	if err != nil {
		return nil, fmt.Errorf("parse the API server's URL: %w", err)
	}
	serving, err := c.identity.Serving.TLS()
	if err != nil {
		return nil, err
	}
	frontProxy, err := c.identity.FrontProxy.TLS()
	if err != nil {
		return nil, err
	}
	return &faultproxy.Backend{
		URL: target, RootCAs: c.identity.CA.Pool(), ClientCAs: c.identity.CA.Pool(),
		ServerCert: serving, FrontProxy: frontProxy,
	}, nil
}

// publish tells the world.
func (c *Cluster) publish(context.Context) error {
	c.info.PID, c.info.Token = os.Getpid(), c.token
	c.info.ReadySeconds = time.Since(c.opts.Started).Seconds()
	return c.dir.writeInfo(c.info)
}

// Info says where everything is, as it is now.
func (c *Cluster) Info() control.Info {
	info := c.info
	info.Etcd = c.etcd.Info()
	for i := range info.Etcd.Members {
		info.Etcd.Members[i].ProxyEndpoint = c.info.Etcd.Members[i].ProxyEndpoint
	}
	return info
}

// ShutdownAsked is closed when a shutdown is requested through the control API.
func (c *Cluster) ShutdownAsked() <-chan struct{} { return c.shutdown }

// Failed yields the error of a component that ended by itself.
func (c *Cluster) Failed() <-chan error {
	if c.plane == nil {
		return nil
	}
	return c.plane.Failed()
}

// Stop stops everything and unlocks the directory.
func (c *Cluster) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var errs []error
	if c.proxies != nil {
		c.proxies.closeAll()
	}
	if c.webhooks != nil {
		errs = append(errs, c.webhooks.server.Close())
	}
	if c.plane != nil {
		errs = append(errs, c.plane.Stop(ctx))
	}
	if c.etcd != nil {
		c.etcd.Stop()
	}
	if c.server != nil {
		errs = append(errs, c.server.Shutdown(ctx))
	}
	return errors.Join(append(errs, c.dir.close())...)
}
