// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pods

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
)

// process is what runs in a pod.
type process struct {
	ip    string
	ports map[int32]int // on this host, by the port in the pod
	main  int           // the port that it serves in any case, 0 if nothing runs
	cmd   *exec.Cmd
	dns   *dns.Server // in place of a program
	udp   bool        // main is a port of datagrams
	log   log
}

// log is what a process has written. It is safe for concurrent use.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// variable is an environment variable with the port that the echo server serves, and the port in the pod.
type variable struct {
	name string
	port int32
}

// udpServer is the variable that has the echo server echo datagrams.
const udpServer = "UDP_ECHO_SERVER"

// variables are those of the kinds of the echo server.
func variables(c *corev1.Container) []variable {
	for _, e := range c.Env {
		switch e.Name {
		case "TCP_ECHO_SERVER":
			return []variable{{"TCP_PORT", 3000}, {"TLS_PORT", 8443}}
		case udpServer:
			return []variable{{"UDP_PORT", 8080}}
		}
	}
	return []variable{{"HTTP_PORT", 3000}, {"H2C_PORT", 3001}, {"HTTPS_PORT", 8443}}
}

// launch starts what runs in a pod.
func (r *Runner) launch(pod *corev1.Pod) (*process, error) {
	p := &process{ports: map[int32]int{}}
	c := &pod.Spec.Containers[0]
	if strings.Contains(c.Image, "/coredns:") {
		return p, p.serveDNS()
	}
	if !strings.Contains(c.Image, "/echo-basic:") {
		return p, nil
	}
	mounts, err := r.mount(pod, c)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(r.Echo)
	p.cmd.Env = environment(pod, c, mounts)
	of := variables(c)
	for i, port := range r.Ports(len(of)) {
		p.ports[of[i].port] = port
		p.cmd.Env = append(p.cmd.Env, of[i].name+"="+strconv.Itoa(port))
	}
	p.main, p.udp = p.ports[of[0].port], of[0].name == "UDP_PORT"
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p, p.cmd.Start()
}

// serveDNS answers queries as CoreDNS does by its plugin "whoami": with where they came from.
func (p *process) serveDNS() error {
	const port = 53
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.ports[port] = socket.LocalAddr().(*net.UDPAddr).Port
	p.dns = &dns.Server{PacketConn: socket, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		answer := new(dns.Msg).SetReply(query)
		answer.Authoritative = true
		if len(query.Question) == 1 {
			from := w.RemoteAddr().(*net.UDPAddr)
			answer.Extra = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: query.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: from.IP}}
		}
		_ = w.WriteMsg(answer)
	})}
	go func() { _ = p.dns.ActivateAndServe() }()
	return nil
}

// listens reports whether the process serves.
func (p *process) listens() bool {
	if p.cmd == nil {
		return true
	}
	network := "tcp"
	if p.udp {
		network = "udp"
	}
	conn, err := net.Dial(network, net.JoinHostPort("127.0.0.1", strconv.Itoa(p.main)))
	if err != nil {
		return false
	}
	defer conn.Close()
	if !p.udp {
		return true
	}
	const answerTime = 200 * time.Millisecond
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	if _, err := conn.Write([]byte("?")); err != nil {
		return false
	}
	_, err = conn.Read(make([]byte, 1<<10))
	return err == nil
}

func (p *process) stop() {
	if p.dns != nil {
		_ = p.dns.Shutdown()
	}
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// mount writes the secrets that a container mounts to this host. It returns the folders by the paths in the container.
func (r *Runner) mount(pod *corev1.Pod, c *corev1.Container) (map[string]string, error) {
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		for _, v := range pod.Spec.Volumes {
			if v.Name != m.Name || v.Secret == nil {
				continue
			}
			s, err := r.secrets.Secrets(pod.Namespace).Get(v.Secret.SecretName)
			if err != nil {
				return nil, err
			}
			dir := filepath.Join(r.Dir, pod.Namespace, pod.Name, v.Name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
			for _, item := range v.Secret.Items {
				if err := os.WriteFile(filepath.Join(dir, item.Path), s.Data[item.Key], 0o600); err != nil {
					return nil, fmt.Errorf("mounting %s: %w", v.Name, err)
				}
			}
			mounts[m.MountPath] = dir
		}
	}
	return mounts, nil
}

// environment is that of a container, with paths of this host.
func environment(pod *corev1.Pod, c *corev1.Container, mounts map[string]string) (all []string) {
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			switch e.ValueFrom.FieldRef.FieldPath {
			case "metadata.name":
				value = pod.Name
			case "metadata.namespace":
				value = pod.Namespace
			}
		}
		for path, dir := range mounts {
			if rest, ok := strings.CutPrefix(value, path+"/"); ok {
				value = filepath.Join(dir, rest)
			}
		}
		all = append(all, e.Name+"="+value)
	}
	return all
}
