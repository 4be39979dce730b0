// Command inmate is all that the harness' image holds: what containers of tests run, one static program.
//
//	inmate pause             ends on SIGTERM; also the sandbox of every Pod
//	inmate serve PORT        answers every request with "<host name>\n" and then the environment, a line each
//	inmate fetch URL         prints what is there; fails after 5 s without an answer
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const usage = "inmate pause | serve PORT | fetch URL"

func environment() string {
	lines := os.Environ()
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func pause() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	fmt.Print(environment())
	<-stop
}

func serve(port string) error {
	go func() {
		pause()
		os.Exit(0)
	}()
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	answer := func(reply http.ResponseWriter, _ *http.Request) { fmt.Fprintf(reply, "%s\n%s", host, environment()) }
	return http.ListenAndServe(":"+port, http.HandlerFunc(answer))
}

func fetch(url string) error {
	answer, err := (&http.Client{Timeout: 5 * time.Second}).Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 0 || arguments[0] == "pause":
		pause()
		return nil
	case len(arguments) == 2 && arguments[0] == "serve":
		return serve(arguments[1])
	case len(arguments) == 2 && arguments[0] == "fetch":
		return fetch(arguments[1])
	}
	return fmt.Errorf("%s", usage)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "inmate:", err)
		os.Exit(1)
	}
}
